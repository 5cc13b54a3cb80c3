"""The commands for trained models: play, import, export, conversion, doctor, and upload to the Hub."""

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .interop.publication import Publication


def play(options: Namespace) -> None:
    """Try models in the browser or in a terminal, alone or side by side.

    MODEL is the folder of a run, any folder that `save_pretrained` wrote, or a name on the Hub; Tercet's or
    stock. Shows what the model can do: fill gaps, continue a text, translate or restore one, classify, label
    words, answer questions, find similar texts; and its tokens and attention maps. Several models answer side
    by side. The page needs Gradio (`pip install 'tercet[play]'`); without it, or with --terminal, the models
    answer in the terminal. The page is reached from this machine alone, unless --host or --share says
    otherwise.

    Examples:
      tercet play runs/encoder-demo/model
      tercet play runs/encoder-demo/model runs/encoder-english/model --terminal
    """
    from importlib.util import find_spec

    in_terminal = options.terminal
    if not in_terminal and find_spec("gradio") is None:
        print("the page needs Gradio (pip install 'tercet[play]'): this is the terminal", file=sys.stderr)
        in_terminal = True
    print("loading ...", file=sys.stderr)
    from .play.sessions import open_session

    session = open_session(options.model)
    if in_terminal:
        from .play.terminal import converse

        converse(session)
        return
    from .play.page import serve

    serve(session, host=options.host, port=options.port, share=options.share)


def import_(options: Namespace) -> None:
    """Convert a stock model to a Tercet model, and certify that both compute the same.

    Reads BERT, DistilBERT, RoBERTa, ELECTRA, BigBird, GPT-2, OPT, GPT-NeoX, Llama, Qwen2, Qwen3, BART,
    mBART, Marian, T5 and mT5 with their heads. Writes the Tercet model, its tokenizer, its generation
    defaults and a certificate to OUTPUT.
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


def convert(options: Namespace) -> None:
    """Read a model as another member: a decoder as an encoder, an encoder as a decoder, two as seq2seq.

    MODEL is Tercet's, or a stock model that `tercet import` supports. All weights stay as they are; what a
    position sees changes, and a sequence-to-sequence model gets new cross-attention. Prints which parameters
    are kept, new (initialized randomly) and dropped, and by how much the predictions change on a few
    sentences, or on the text of --text. Writes the model, its tokenizer and a README.md to --output. The
    folder can be the `model.path` of a recipe for pretraining or fine-tuning.

    Examples:
      tercet convert runs/decoder-demo/model --to encoder --output runs/decoder-as-encoder
      tercet convert runs/encoder-demo/model --decoder runs/my-decoder/model --to seq2seq --output runs/pair
    """
    from .interop.member_run import convert_model

    report = convert_model(
        options.model,
        options.to,
        options.output,
        decoder=options.decoder,
        text=options.text,
        seed=options.seed,
        overwrite=options.overwrite,
    )
    print(report.table())


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
    from .interop.doctor import diagnose, diagnosis_as_json, report_diagnosis

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

    --space also makes a Space of the same name, where everybody can try the model in a browser, as with
    `tercet play`. --space-folder writes the Space into a folder instead, and uploads nothing.

    The access token is the one of `hf auth login`, or HF_TOKEN.

    Examples:
      tercet push runs/encoder-demo me/encoder-demo --dry-run
      tercet push runs/encoder-demo me/encoder-demo --private --message "First version"
    """
    from .interop.hub import push as send
    from .interop.publication import describe, prepare

    publications = [prepare(options.folder, options.repo)]
    if options.space or options.space_folder is not None:
        publications.append(space_of(publications[0], options))
    if options.space_folder is not None:
        from .play.space import write_space

        print(write_space(publications[1], options.space_folder))
        return
    if options.dry_run:
        print("\n\n".join(describe(publication, options.revision) for publication in publications))
        return
    for missing in publications[0].missing:
        print(f"the card lacks {missing}", file=sys.stderr)
    for publication in publications:
        print(send(publication, private=options.private, revision=options.revision, message=options.message))


def space_of(publication: "Publication", options: Namespace) -> "Publication":
    """Prepare the Space beside a model.

    Raises:
        ValueError: The model is to go to a branch, which no Space reads.
    """
    from .interop.finished_run import find_run
    from .play.space import prepare_space

    if options.revision is not None:
        raise ValueError(
            f"--revision is {options.revision!r}, but a Space shows the main branch: leave --space or "
            "--revision out"
        )
    return prepare_space(publication, find_run(publication.folder))
