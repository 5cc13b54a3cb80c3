"""The commands about models: from and to other forms and places, and what is wrong or goes on inside them."""

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from .calls import say_that_libraries_load
from .command import TRUST_REMOTE_CODE, Argument, OneOf, command, flag, whole_number
from .laboratory import studies, study_completions
from .training.ownership import require_free

if TYPE_CHECKING:
    from .tools.push.publication import Publication


@command(
    Argument("source", metavar="SOURCE", help="a folder, or a repository on the Hub"),
    Argument("output", metavar="OUTPUT", help="the folder to write"),
    Argument("--revision", metavar="REF", help="branch, tag or commit on the Hub"),
    flag("--overwrite", "replace an earlier model there"),
)
def import_command(options: Namespace) -> None:
    """Convert a stock model to a Tercet model, and certify that both compute the same.

    Reads BERT, DistilBERT, RoBERTa, ELECTRA, BigBird, ModernBERT, GPT-2, OPT, GPT-NeoX, Llama, Mistral,
    Qwen2, Qwen3, BART, mBART, Marian, T5 and mT5 with their heads. Writes the Tercet model, its tokenizer,
    its generation defaults and a certificate to OUTPUT.
    For the certificate, both models are run on random ids and on texts: padded, packed, cached and in
    training, in float64 and float32. If they differ by more than rounding, nothing is written, and the exit
    code is 2.

    Examples:
      tercet import ~/models/my-bert runs/my-bert
      tercet import openai-community/gpt2 runs/gpt2
    """
    from .checks import check_models

    require_free(options.output, overwrite=options.overwrite)
    check_models(options.source, asks_hub=options.revision is None)
    say_that_libraries_load()
    from .tools.import_export.run import import_model

    certificate = import_model(
        options.source, options.output, revision=options.revision, overwrite=options.overwrite
    )
    print(certificate.table())


@command(
    Argument("model", metavar="MODEL", help="a folder with a Tercet model"),
    Argument("output", metavar="OUTPUT", help="the folder to write"),
    OneOf(
        Argument("--to", metavar="TYPE", help="bert, gpt2, llama, bart, ... (default: the first that fits)"),
        flag("--onnx", "write graphs of ONNX"),
    ),
    flag("--int8", "write graphs with 8-bit integers, too"),
    flag("--overwrite", "replace an earlier model there"),
)
def export_command(options: Namespace) -> None:
    """Convert a Tercet model to a stock architecture, or to graphs of ONNX.

    Finds a stock architecture that computes exactly the same, or uses the one of --to. Writes OUTPUT: a
    folder that needs neither Tercet nor remote code, with the tokenizer, generation defaults and a
    certificate. If no architecture matches, the reasons are listed, and nothing is written.

    With --onnx, OUTPUT holds model.onnx (sequence to sequence: encoder_model.onnx, decoder_model.onnx) for
    ONNX Runtime, the configuration, the tokenizer, generation defaults and the files of
    sentence-transformers; with --int8 also graphs with 8-bit integers. All Transformers of Tercet have
    graphs. They are compared with the model, and timed on this CPU. Needs `pip install 'tercet[onnx]'`.

    Examples:
      tercet export runs/my-decoder/model exported/my-decoder
      tercet export runs/reviews/model exported/reviews --onnx --int8
    """
    from .checks import check_models

    if options.int8 and not options.onnx:
        raise ValueError("--int8 is about graphs of ONNX: add --onnx")
    require_free(options.output, overwrite=options.overwrite)
    check_models(options.model)
    say_that_libraries_load()
    if options.onnx:
        from .tools.import_export.onnx_graphs import export_graphs, table

        graphs = export_graphs(options.model, options.output, int8=options.int8, overwrite=options.overwrite)
        print(table(graphs))
        print("ms: medians on this CPU, where other programs take their share", file=sys.stderr)
        file = os.path.join(options.output, graphs[0].file)
        print(f"next, in Python: onnxruntime.InferenceSession({file!r})", file=sys.stderr)
        return
    from .tools.import_export.run import export_model

    certificate = export_model(
        options.model, options.output, model_type=options.to, overwrite=options.overwrite
    )
    print(certificate.table())


@command(
    Argument("model", metavar="MODEL", help="a folder, or a repository on the Hub"),
    Argument("--to", required=True, choices=("encoder", "decoder", "seq2seq"), help="the member"),
    Argument("--output", required=True, metavar="FOLDER", help="the folder to write"),
    Argument("--decoder", metavar="MODEL", help="the decoder of a seq2seq (default: MODEL again)"),
    Argument("--text", metavar="FILE", help="text on which predictions are compared"),
    Argument("--seed", type=whole_number, default=0, help="of new weights (%(default)s)"),
    flag("--overwrite", "replace an earlier model there"),
)
def convert_command(options: Namespace) -> None:
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
    from .checks import check_models

    require_free(options.output, overwrite=options.overwrite)
    if options.text is not None and not Path(options.text).expanduser().exists():
        raise FileNotFoundError(f"--text {options.text} is no file: name a text file")
    check_models(options.model, *filter(None, [options.decoder]))
    say_that_libraries_load()
    from .tools.convert.run import convert_model

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


@command(
    Argument("model", metavar="MODEL", help="a folder that save_pretrained wrote, or a Hub name"),
    flag("--json", "print the findings as JSON"),
    TRUST_REMOTE_CODE,
)
def doctor_command(options: Namespace) -> None:
    """Check any transformers model for faults, and print findings with remedies.

    Loads an encoder, a decoder or a sequence-to-sequence model, Tercet's or stock. Checks the weights
    (missing, unexpected, not finite, wrongly tied), the tokenizer (vocabulary, special tokens and lengths,
    compared with the model's) and the behaviour (padding, causality, packed documents). Numbers are compared
    in float32, and nothing in the folder is changed. Exit code 0: nothing failed; 1: a check failed.

    Examples:
      tercet doctor runs/encoder-demo/model
      tercet doctor google-bert/bert-base-uncased --json
    """
    from .checks import check_models

    check_models(options.model)
    say_that_libraries_load()
    from .tools.doctor.diagnosis import diagnose, diagnosis_as_json, report_diagnosis

    diagnosis = diagnose(options.model, trust_remote_code=options.trust_remote_code)
    print(diagnosis_as_json(diagnosis) if options.json else report_diagnosis(diagnosis))
    if not diagnosis.is_healthy:
        raise SystemExit(1)


@command(
    Argument("model", metavar="MODEL", help="a folder that save_pretrained wrote, or a Hub name"),
    Argument("text", metavar="TEXT", help="what the model reads, at most 64 tokens"),
    Argument("--target", metavar="TEXT", help="what a seq2seq model writes (its own answer)"),
    Argument("--output", default="inspection.html", metavar="FILE", help="the page to write (%(default)s)"),
    flag("--overwrite", "replace an earlier page"),
    TRUST_REMOTE_CODE,
)
def inspect_command(options: Namespace) -> None:
    """Look inside a model while it reads a text, and write one page about it.

    MODEL is any Transformer with attention heads, Tercet's or stock. The page shows the attention map of
    every head, what each layer would predict (logit lens), and how far the predictions move without each
    head (ablation). Everything stands beside the same of random weights, and maps beside what distance alone
    explains, since maps of any model look like something. A sequence-to-sequence model writes an answer, or
    --target. The page is one HTML file that needs no network. Nothing in the model's folder is changed.

    Examples:
      tercet inspect runs/encoder-demo/model "The function returns a list of strings."
      tercet inspect openai-community/gpt2 "The cat sat on the mat. The cat sat on" --output cat.html
    """
    from .checks import check_models, require_page

    require_page(options.output, overwrite=options.overwrite)
    check_models(options.model)
    say_that_libraries_load()
    from .tools.inspect.page import inspect_model

    choices = {"target": options.target, "trust_remote_code": options.trust_remote_code}
    print(inspect_model(options.model, options.text, options.output, **choices))


@command(
    Argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="a study; without, all are listed",
        completions=study_completions,
    ),
    flag("--predict", "ask for your prediction first"),
    Argument(
        "--break", dest="broken", default="", metavar="SWITCH", help="take away what the claim is about"
    ),
    Argument("--seeds", type=whole_number, metavar="N", help="runs, 2 or more (the study's)"),
    Argument("--output", metavar="DIR", help="folder of the page (runs/studies/NAME)"),
)
def study_command(options: Namespace) -> None:
    """Measure a claim of the literature with Tercet's own parts, and say whether it is confirmed.

    Without NAME, lists the studies. With it, runs one: prints the claim, the prediction that was written
    before the first run, what was measured with several seeds, and the verdict by its interval. Writes a page
    with a picture. --predict asks for your own prediction first. --break takes away what the claim is about,
    after which the verdict must be another; the page of a study names its switches. No network is needed.

    Examples:
      tercet study
      tercet study scaled-scores --break no-scale
    """
    session = studies("session")
    if options.name is None:
        print(session.list_studies())
        return
    print(
        session.carry_out(
            options.name,
            broken=options.broken,
            predict=options.predict,
            seeds=options.seeds,
            output=options.output,
        )
    )


@command(
    Argument("folder", metavar="FOLDER", help="a run's output, or a saved model"),
    Argument("repo", metavar="REPO", help="the repository: owner/name"),
    flag("--private", "make the repository private"),
    flag("--dry-run", "upload nothing, list what would be uploaded"),
    Argument("--revision", help="branch to commit to, created if it does not exist (main)"),
    Argument("--message", help="commit message"),
    flag("--all-revisions", "push all intermediate models of a run instead, each as a revision"),
    flag("--space", "also make a Space that shows the model"),
    Argument("--space-folder", metavar="DIR", help="write the files of the Space to DIR, and upload nothing"),
)
def push_command(options: Namespace) -> None:
    """Upload a trained model to the Hugging Face Hub, with its code and a model card about its run.

    FOLDER is the output of a run, or any folder that `save_pretrained` wrote. REPO is created if it does not
    exist. Uploads weights, configuration, tokenizer, recipe, plots, and the code that loads the model where
    Tercet is not installed, but no checkpoints or logs. The model card is built from the files of the run.
    All files are checked before the upload starts. To continue an interrupted upload, repeat the command.

    --all-revisions pushes the intermediate models that a run has kept (`training.revisions`) instead, each
    as a revision of its name: step-1000, or chck_7M. What the repository has already is not pushed again.

    --space also makes a Space of the same name, where everybody can try the model in a browser, as with
    `tercet play`. --space-folder writes the Space into a folder instead, and uploads nothing.

    The access token is the one of `hf auth login`, or HF_TOKEN.

    Examples:
      tercet push runs/encoder-demo me/encoder-demo --dry-run
      tercet push runs/encoder-demo me/encoder-demo --private --message "First version"
    """
    from .checks import check_models, require_output

    if options.all_revisions:  # of a run that need not have ended
        require_output(options.folder)
        push_all_revisions(options)
        return
    check_models(options.folder, of_run=True, asks_hub=False)
    if not Path(options.folder).expanduser().exists():
        raise FileNotFoundError(f"{options.folder} does not exist: name the folder of a run, or of a model")
    from .tools.push.publication import describe, prepare
    from .tools.push.push import push as send

    publications = [prepare(options.folder, options.repo)]
    if options.space or options.space_folder is not None:
        publications.append(space_of(publications[0], options))
    if options.space_folder is not None:
        from .tools.play.space import write_space

        print(write_space(publications[1], options.space_folder))
        return
    if options.dry_run:
        print("\n\n".join(describe(publication, options.revision) for publication in publications))
        return
    for missing in publications[0].missing:
        print(f"the card lacks {missing}", file=sys.stderr)
    for publication in publications:
        print(send(publication, private=options.private, revision=options.revision, message=options.message))


def push_all_revisions(options: Namespace) -> None:
    """Push a run's intermediate models."""
    from .tools.push.publication import describe, prepare, require_repo_id
    from .tools.push.revisions import missing_revisions, push_revisions, revisions_of

    singles = ("revision", "space", "space_folder")
    if given := [f"--{name}".replace("_", "-") for name in singles if getattr(options, name)]:
        raise ValueError(f"{given[0]} is for one model, but --all-revisions pushes several: leave one out")
    require_repo_id(options.repo)
    folder = Path(options.folder).expanduser()
    if not (models := revisions_of(folder)):
        raise ValueError(f"{folder} has no intermediate models (revisions/): set training.revisions")
    if options.dry_run:
        prepared = (prepare(model, options.repo, revision=model.name) for model in models)
        print("\n\n".join(describe(each, each.folder.name) for each in prepared))
        return
    todo = missing_revisions(folder, options.repo)
    for address in push_revisions(todo, options.repo, private=options.private, message=options.message):
        print(address, flush=True)
    print(f"{len(models) - len(todo)} of {len(models)} revisions were there already", file=sys.stderr)


def space_of(publication: "Publication", options: Namespace) -> "Publication":
    """Prepare the Space beside a model."""
    from .reports.finished_run import find_run
    from .tools.play.space import prepare_space

    if options.revision is not None:
        raise ValueError(
            f"--revision is {options.revision!r}, but a Space shows the main branch: leave --space or "
            "--revision out"
        )
    return prepare_space(publication, find_run(publication.folder))
