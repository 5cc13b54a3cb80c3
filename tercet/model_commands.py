"""The commands for trained models: import, export, doctor, and upload to the Hub."""

import sys
from argparse import Namespace


def import_(options: Namespace) -> None:
    """Convert a stock model to a Tercet model, and certify that both compute the same.

    Reads BERT, DistilBERT, RoBERTa, ELECTRA, BigBird (full attention), GPT-2, OPT, GPT-NeoX, Llama, Qwen2,
    Qwen3, BART, mBART, Marian, T5 and mT5 with their heads. Writes the Tercet model, its tokenizer, its
    generation defaults and a certificate to OUTPUT.
    For the certificate, both models are run on random ids and on texts: padded, packed, cached and in
    training, in float64 and float32. If they differ by more than rounding, nothing is written, and the exit
    code is 2.

    Examples:
      tercet import ~/models/my-bert runs/my-bert
      tercet import openai-community/gpt2 runs/gpt2
    """
    from .interop.run import import_model

    certificate = import_model(
        options.source, options.output, revision=options.revision, overwrite=options.overwrite
    )
    print(certificate.table())


def export(options: Namespace) -> None:
    """Convert a Tercet model to a stock architecture, which any program based on transformers loads.

    Finds a stock architecture that computes exactly the same, or uses the one of --to. Writes OUTPUT: a
    folder that needs neither Tercet nor remote code, with the tokenizer, generation defaults and a
    certificate. If no architecture matches, the reasons are listed, and nothing is written.

    Examples:
      tercet export runs/my-decoder/model exported/my-decoder
      tercet export runs/my-bert exported/my-bert --to bert
    """
    from .interop.run import export_model

    certificate = export_model(
        options.model, options.output, model_type=options.to, overwrite=options.overwrite
    )
    print(certificate.table())


def doctor(options: Namespace) -> None:
    """Check any transformers model for faults, and print findings with remedies.

    Loads an encoder, a decoder or a sequence-to-sequence model, Tercet's or stock. Checks the weights
    (missing, unexpected, not finite, constant, wrongly tied), the tokenizer (vocabulary, special tokens and
    lengths, compared with the model's) and the behaviour (padding, batches, causality, packed documents,
    cache, saving). Numbers are compared in float32, and nothing in the folder is changed. Exit code 0:
    nothing failed; 1: a check failed.

    Examples:
      tercet doctor runs/encoder-demo/model
      tercet doctor google-bert/bert-base-uncased --json
    """
    from .interop.diagnosis_report import diagnosis_as_json, report_diagnosis
    from .interop.doctor import diagnose

    diagnosis = diagnose(options.model, trust_remote_code=options.trust_remote_code)
    print(diagnosis_as_json(diagnosis) if options.json else report_diagnosis(diagnosis))
    if not diagnosis.is_healthy:
        raise SystemExit(1)


def push(options: Namespace) -> None:
    """Upload a trained model to the Hugging Face Hub, with its code and a model card about its run.

    FOLDER is the output of a run, or any folder that `save_pretrained` wrote. REPO is created if it does not
    exist. Uploads weights, configuration, tokenizer, recipe, plots, and the code that loads the model where
    Tercet is not installed, but no checkpoints or logs. The model card is built from the files of the run.
    All files are checked before the upload starts. To continue an interrupted upload, repeat the command.

    The access token is the one of `hf auth login`, or HF_TOKEN.

    Examples:
      tercet push runs/encoder-demo me/encoder-demo --dry-run
      tercet push runs/encoder-demo me/encoder-demo --private --message "First version"
    """
    from .interop.hub import push as send
    from .interop.publication import describe, prepare

    publication = prepare(options.folder, options.repo)
    if options.dry_run:
        print(describe(publication, options.revision))
        return
    for missing in publication.missing:
        print(f"the card lacks {missing}", file=sys.stderr)
    print(send(publication, private=options.private, revision=options.revision, message=options.message))
