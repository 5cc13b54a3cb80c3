"""The commands about finished models: in from other houses, out to them, and to the Hub."""

import sys
from argparse import Namespace


def import_(options: Namespace) -> None:
    """Bring in a stock model: what it computes does not change, and a certificate says so.

    Reads BERT, DistilBERT, RoBERTa, ELECTRA, BigBird (full attention), GPT-2, OPT, GPT-NeoX, Llama, Qwen2,
    Qwen3, BART, mBART, Marian, T5 and mT5, with their heads, and writes OUTPUT: the same model as one of
    Tercet's, its tokenizer and generation defaults.
    Both models are run on random ids and on texts, padded, packed, cached and in training, in float64 and
    float32. If they differ by more than rounding, nothing is written, and the exit code is 2.

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
    """Write a model as a stock architecture, which everything that knows transformers loads.

    Takes the stock architecture that is exactly this model, or the one that you ask for, and writes OUTPUT: a
    folder that needs neither Tercet nor remote code, with tokenizer, generation defaults and a certificate.
    If no architecture is this model, the reasons are listed, and nothing is written.

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
    """Examine any model in the form of transformers, and say what is wrong with it and what helps.

    Loads an encoder, a decoder or a sequence-to-sequence model, ours or a stock one, and prints findings with
    remedies. Weights: missing, unread, not finite, dead, wrongly tied. Tokenizer: vocabulary, special tokens
    and lengths beside the model's. Behaviour: padding, batches, causality, packed documents, cache, saving.
    Numbers are compared in float32 and nothing in the folder is changed. Exit code 0: nothing failed; 1:
    something did.

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
    """Send a finished model to the Hugging Face Hub, with its code and a card that tells of its run.

    FOLDER is the output of `tercet pretrain`, or any folder of `save_pretrained`. REPO is made if it does not
    exist. Sent are weights, configuration, tokenizer, recipe, plots and the code that loads the model where
    Tercet is not installed; checkpoints and logs stay. The model card is built from what the run left. All
    is checked before anything is sent; an interrupted push, repeated, sends what is missing.

    The token is the one of `hf auth login`, or HF_TOKEN.

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
