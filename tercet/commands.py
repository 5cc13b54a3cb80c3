"""The commands of `tercet`, each of which imports what it needs. A command's docstring is its help."""

import json
import os
import re
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from . import api
from .results import Result


def plan(options: Namespace) -> None:
    """Estimate the FLOPs, memory, communication, time and cost of a run on given machines.

    Reads no text and trains nothing. Prints parameters and FLOPs. For one device, DDP, FSDP2 and HSDP it
    also prints the memory of a device by component, its communication, the speed at the share of peak FLOPs
    that similar models have reached (MFU), and device-hours. If a run does not fit, it prints what would.
    The tables are Markdown.

    Without `device`, the device of this machine is meant, and its speed is measured in a second. The numbers
    of others are their makers': a100, h100, h200, rtx3090, rtx4090, rtx5090, cpu.

    key=value describes the machines: devices, device, mfu, peak_flops, device_memory, usable_memory,
    bandwidth, devices_per_node, price_per_device_hour. Keys with a dot override values of the recipe, as in
    `tercet pretrain`.

    Examples:
      tercet plan encoder-english
      tercet plan my-recipe.yaml devices=8 device=a100 mfu=0.35 price_per_device_hour=1.80
    """
    print(api.plan(options.recipe, *options.overrides))


def tokenizer(options: Namespace) -> None:
    """Train the tokenizer that a recipe describes, and nothing else.

    Reads the recipe's training corpus and writes OUTPUT/tokenizer, a folder that AutoTokenizer loads. Other
    recipes can share it with `tokenizer.path`. `tercet pretrain` trains a tokenizer itself if the recipe has
    no `tokenizer.path`.

    Examples:
      tercet tokenizer encoder-demo
      tercet tokenizer my-recipe.yaml tokenizer.kind=unigram tokenizer.vocab_size=16000 output=runs/unigram
    """
    from .checks import check_recipe
    from .configs.recipe import load_recipe

    named = options.recipe, options.overrides
    check_recipe("tokenizer", *named, writes=True, overwrite=options.overwrite)
    from .pretraining.recipe import PretrainingRecipe
    from .pretraining.run import train_recipe_tokenizer

    recipe = load_recipe(PretrainingRecipe, *named)
    print(train_recipe_tokenizer(recipe, overwrite=options.overwrite))


def prepare(options: Namespace) -> None:
    """Tokenize a corpus once, in shards, for any number of pretraining runs and machines.

    Reads files here or in an object store, leaves out what filters and deduplication of datatrove find, and
    writes OUTPUT/manifest.json beside memory-mapped shards: `corpus.train=OUTPUT` in a pretraining recipe
    reads them, and its tokenizer is used unless the recipe names one. The shards do not depend on the number
    of workers. After an interruption, the same command goes on with the shards that are missing.

    Examples:
      tercet prepare prepare-text corpus.path=books/ tokenizer=runs/decoder-demo/tokenizer workers=4
      tercet prepare my-recipe.yaml output=prepared/web --executor slurm
    """
    print(api.prepare(options.recipe, *chosen_executor(options), overwrite=options.overwrite))


def chosen_executor(options: Namespace) -> list[str]:
    """Return the overrides of a preparation, with the executor that an option names."""
    chosen = [] if options.executor is None else [f"executor.kind={options.executor}"]
    return [*options.overrides, *chosen]


def pretrain(options: Namespace) -> None:
    """Pretrain a model on raw text.

    Trains or loads the tokenizer, tokenizes the corpus once, trains, evaluates, and writes OUTPUT/model: a
    folder with the model, the tokenizer and the recipe, which the Auto classes load. RECIPE is the name of a
    shipped recipe (`tercet recipes` lists them) or a YAML file, and key=value overrides any of its values.
    On several devices: `accelerate launch -m tercet pretrain RECIPE`. --explain only prints the recipe with
    all of its values, as a file that editors complete by the schema of recipes.

    Examples:
      tercet pretrain encoder-demo training.steps=200 output=runs/short
      tercet pretrain my-recipe.yaml corpus.train=books.txt corpus.validation=held-out.txt --resume
    """
    if options.explain:
        from .checks import check_recipe
        from .listing import print_values

        print_values("pretrain", check_recipe("pretrain", options.recipe, options.overrides))
        return
    finish(
        api.pretrain(options.recipe, *options.overrides, resume=options.resume, overwrite=options.overwrite)
    )


def finish(result: Result) -> None:
    """Tell how a run ended, and print the folder of the finished model, or of the evaluation."""
    from accelerate import PartialState

    if result.command == "fewshot" or PartialState().is_main_process:
        for line in result.ending():
            print(line, file=sys.stderr)
        print(result.folder if result.command == "fewshot" else result.model_path)


def verify_resume(options: Namespace) -> None:
    """Verify on your recipe that a killed and resumed run equals an uninterrupted one.

    Runs the recipe's first steps without interruption, and again with two kills (SIGKILL): one as soon as a
    checkpoint is complete, one at a random moment. Compares losses, gradients, learning rates and the data,
    step by step, then weights, optimizer and random generators, bit by bit. Writes to a temporary folder and
    leaves your runs alone. Exit code 0: equal; 1: different.

    Examples:
      tercet verify-resume encoder-demo
      tercet verify-resume my-recipe.yaml --steps 30 training.num_workers=2 training.precision=fp32
    """
    from .checks import check_recipe
    from .configs.recipe import load_recipe

    check_recipe("verify-resume", options.recipe, options.overrides)
    from .pretraining.recipe import PretrainingRecipe
    from .pretraining.verification import report
    from .pretraining.verification import verify_resume as verify

    recipe = load_recipe(PretrainingRecipe, options.recipe, options.overrides)
    verification = verify(recipe, steps=options.steps, say=lambda line: print(line, file=sys.stderr))
    print(report(verification))
    if not verification.is_exact:
        raise SystemExit(1)


def finetune(options: Namespace) -> None:
    """Fine-tune a pretrained model on labelled rows, and report its scores with intervals and baselines.

    Starts from any Tercet model or a stock one, trains on labelled rows (.jsonl, .csv, .tsv, .parquet, or a
    data set of the Hub) and keeps the best checkpoint. Writes OUTPUT/model, which pipelines load, and
    OUTPUT/report.html: scores with intervals and baselines, scores per label and over time, and the worst
    errors. The learning rate is chosen by the size of the model if the recipe has none. --explain only shows
    rows, steps and learning rate.

    Examples:
      tercet finetune text-classification model.path=runs/encoder-demo/model data.train=reviews.csv
      tercet finetune my-recipe.yaml training.seeds=[0,1,2] training.learning_rate=3e-5 --resume
    """
    if options.explain:
        from .checks import check_recipe

        check_recipe("finetune", options.recipe, options.overrides)
        api.say_that_libraries_load()
        from .finetune.explanation import explain

        print(explain(api.load_recipe(options.recipe, *options.overrides, command="finetune")))
        return
    finish(
        api.finetune(options.recipe, *options.overrides, resume=options.resume, overwrite=options.overwrite)
    )


def distill(options: Namespace) -> None:
    """Distill a model into a smaller one, and report how much quality it keeps and how much it saves.

    The student is initialized with some of the teacher's layers. It learns from a pretrained teacher on raw
    text, from a fine-tuned teacher on rows, or first from the one and then from the other. The teacher is any
    Tercet model or a stock one. Writes OUTPUT/model and OUTPUT/report.html: scores of student and teacher
    with intervals, sizes and times, and two controls: the same student trained without a teacher, and from
    random weights.

    Examples:
      tercet distill encoder-distilled general.teacher=runs/encoder-english/model
      tercet distill task-distilled task.teacher=runs/reviews/model task.data.train=reviews.csv --resume
    """
    finish(
        api.distill(options.recipe, *options.overrides, resume=options.resume, overwrite=options.overwrite)
    )


def predict(options: Namespace) -> None:
    """Predict a text, or the rows of a file, with a fine-tuned model.

    A text's prediction is printed as JSON. A model that reads several columns, such as a question and its
    context, takes a text for each, in this order. Rows of a file need the columns that the model reads, and
    no labels. They come back with all of their columns, and the prediction behind them; the ending of
    --output chooses the format. A column that is called like a predicted one becomes given_NAME. Rows are
    read and written a thousand at a time, so a file may have any size. A word with an ending or a slash is
    taken for a file.

    Examples:
      tercet predict runs/reviews/model "I liked it."
      tercet predict runs/reviews/model new-reviews.csv --output labels.csv
    """
    if is_text(options.rows):
        if options.output or options.overwrite:
            raise ValueError(
                "--output and --overwrite are about files of rows, and the prediction of a text is printed: "
                "leave them out"
            )
        api.say_that_libraries_load()
        predictions = api.predict(options.model, [tuple(options.rows)], precision=options.precision)
        print(json.dumps(predictions[0], ensure_ascii=False))
        return
    (source,) = options.rows
    output = options.output or "predictions.jsonl"
    from .checks import check_rows
    from .data.files.row_writers import require_ending

    if output != "-":
        require_ending(output)
    if source != "-":
        check_rows(options.model, source)
    api.say_that_libraries_load()
    from .finetune.prediction import predict_file

    predict_file(options.model, source, output, overwrite=options.overwrite, precision=options.precision)


FILES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".gz", ".zst")
"""How the names of files of rows end."""


def is_text(words: list[str]) -> bool:
    """Return whether words of a command line are texts, and not the name of a file, which may not be there.

    >>> [is_text([word]) for word in ("I liked it.", "Great", "a/b or c", "...")]
    [True, True, True, True]
    >>> [is_text([word]) for word in ("-", "rows.csv", "my/rows", "rows.cvs", "my rows.csv")]
    [False, False, False, False, False]
    """
    word, *others = words
    is_name = re.fullmatch(r"\S*(/\S*|\.[A-Za-z]\w*)", word) is not None or word.endswith(FILES)
    return bool(others) or not (word == "-" or is_name or os.path.isfile(word))


def embed(options: Namespace) -> None:
    """Write a vector for each text of a file, as sentence-transformers would, but faster.

    MODEL is Tercet's, a stock model, or a folder of sentence-transformers, whose pooling, prompts, lengths
    and normalization are followed. A row is a vector, in the order of FILE; empty texts have one, too. Writes
    an array (.npy), or a table with the texts and a column `embedding` (.parquet). With --index, also an
    index of faiss for nearest neighbours, OUTPUT with the ending .faiss, which
    `datasets.Dataset.load_faiss_index` reads (`pip install 'tercet[index]'`).

    Examples:
      tercet embed sentence-transformers/all-MiniLM-L6-v2 questions.csv --column question
      tercet embed runs/search/model passages.jsonl --output passages.parquet --index
    """
    if options.file != "-":
        from .data.files.record_files import TEXT_LINES, find_file

        find_file(options.file, others=TEXT_LINES)
    api.say_that_libraries_load()
    from .tools.embed.vector_files import embed_file

    found = embed_file(
        options.model,
        options.file,
        options.output,
        column=options.column,
        prompt=options.prompt,
        precision=options.precision,
        index=options.index,
        overwrite=options.overwrite,
    )
    speed = found.num_texts / max(found.seconds, 1e-9)
    texts = f"{found.num_texts:,} {'text' if found.num_texts == 1 else 'texts'}"
    print(f"{texts} -> vectors of {found.width:,} numbers; {speed:,.0f} texts/s", file=sys.stderr)
    print(*found.files, sep="\n")


def fewshot(options: Namespace) -> None:
    """Evaluate pretrained encoders, decoders and seq2seq models with zero-, one- and few-shot prompts.

    A recipe defines the rows, the templates of prompts and answers, and the number of demonstrations in a
    prompt (`prompting.num_fewshot`). Answers are scored by the log-likelihood of the continuation (decoders)
    or of the target (sequence-to-sequence models), or by pseudo-log-likelihood (encoders). Weights do not
    change. Writes OUTPUT/report.html, scores.json and one line for every item.
    --explain only shows which tokens are scored.

    Examples:
      tercet fewshot copa --model runs/decoder-english/model
      tercet fewshot my-task.yaml --model gpt2 --model runs/mine/model prompting.num_fewshot=[0,1,4] --explain
    """
    models = options.model or None
    if options.explain:
        print(explained(options.recipe, options.overrides, models, options.trust_remote_code))
        return
    choices = {"overwrite": options.overwrite, "trust_remote_code": options.trust_remote_code}
    finish(api.fewshot(options.recipe, *options.overrides, models=models, **choices))


def explained(source: str, overrides: list[str], models: list[str] | None, trust_remote_code: bool) -> str:
    """Return which tokens of a few-shot recipe's prompts are scored."""
    from .checks import check_recipe

    given = overrides if models is None else [*overrides, f"models={json.dumps(models)}"]
    check_recipe("fewshot", source, given)
    api.say_that_libraries_load()
    from .fewshot.explanation import explain

    recipe = api.load_recipe(source, *given, command="fewshot")
    return explain(recipe, trust_remote_code=trust_remote_code)


def report(options: Namespace) -> None:
    """Make the report of a finished run again, from what the run left in its folder.

    A run ends with its report. This makes the same page of the model and the facts in the folder: where the
    report could not be made, or was deleted. Rows and models that the run has read are read again, from where
    its recipe says. Prints the path of the page.

    Examples:
      tercet report runs/reviews
      tercet report runs/copa
    """
    result = api.report(options.finished)
    for line in result.ending():
        print(line, file=sys.stderr)
    print(result.report)


if TYPE_CHECKING:
    from .tools.push.publication import Publication


def play(options: Namespace) -> None:
    """Try models in the browser, alone or side by side.

    MODEL is the folder of a run, any folder that `save_pretrained` wrote, or a name on the Hub; Tercet's or
    stock. Shows what the model can do: fill gaps, continue a text, translate or restore one, classify, label
    words, answer questions, find similar texts; and its tokens. Several models answer side by side. The page
    needs Gradio (`pip install 'tercet[play]'`), and is reached from this machine alone.

    Examples:
      tercet play runs/encoder-demo/model
      tercet play runs/encoder-demo/model runs/encoder-english/model
    """
    from importlib.util import find_spec

    if find_spec("gradio") is None:
        raise ValueError("the page needs Gradio, not installed here: pip install 'tercet[play]'")
    api.say_that_libraries_load()
    from .tools.play.page import serve
    from .tools.play.sessions import open_session

    serve(open_session(options.model), port=options.port)


def import_(options: Namespace) -> None:
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
    api.say_that_libraries_load()
    from .tools.import_export.run import import_model

    certificate = import_model(
        options.source, options.output, revision=options.revision, overwrite=options.overwrite
    )
    print(certificate.table())


def export(options: Namespace) -> None:
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
    if options.int8 and not options.onnx:
        raise ValueError("--int8 is about graphs of ONNX: add --onnx")
    api.say_that_libraries_load()
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
    api.say_that_libraries_load()
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


def doctor(options: Namespace) -> None:
    """Check any transformers model for faults, and print findings with remedies.

    Loads an encoder, a decoder or a sequence-to-sequence model, Tercet's or stock. Checks the weights
    (missing, unexpected, not finite, wrongly tied), the tokenizer (vocabulary, special tokens and lengths,
    compared with the model's) and the behaviour (padding, causality, packed documents). Numbers are compared
    in float32, and nothing in the folder is changed. Exit code 0: nothing failed; 1: a check failed.

    Examples:
      tercet doctor runs/encoder-demo/model
      tercet doctor google-bert/bert-base-uncased --json
    """
    api.say_that_libraries_load()
    from .tools.doctor.diagnosis import diagnose, diagnosis_as_json, report_diagnosis

    diagnosis = diagnose(options.model, trust_remote_code=options.trust_remote_code)
    print(diagnosis_as_json(diagnosis) if options.json else report_diagnosis(diagnosis))
    if not diagnosis.is_healthy:
        raise SystemExit(1)


def inspect(options: Namespace) -> None:
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
    api.say_that_libraries_load()
    from .tools.inspect.page import inspect_model

    choices = {"target": options.target, "trust_remote_code": options.trust_remote_code}
    print(inspect_model(options.model, options.text, options.output, **choices))


def study(options: Namespace) -> None:
    """Measure a claim of the literature with Tercet's own parts, and say whether it is confirmed.

    Without NAME, lists the studies. With it, runs one: prints the claim, the prediction that was written
    before the first run, what was measured with several seeds, and the verdict by its interval. Writes a page
    with a picture. --predict asks for your own prediction first. --break takes away what the claim is about,
    after which the verdict must be another; the page of a study names its switches. No network is needed.

    Examples:
      tercet study
      tercet study scaled-scores --break no-scale
    """
    from .laboratory import studies

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


def push(options: Namespace) -> None:
    """Upload a trained model to the Hugging Face Hub, with its code and a model card about its run.

    FOLDER is the output of a run, or any folder that `save_pretrained` wrote. REPO is created if it does not
    exist. Uploads weights, configuration, tokenizer, recipe, plots, and the code that loads the model where
    Tercet is not installed, but no checkpoints or logs. The model card is built from the files of the run.
    All files are checked before the upload starts. To continue an interrupted upload, repeat the command.

    --checkpoints pushes the intermediate models that a run has kept (`training.revisions`) instead, each as a
    revision of its name: step-1000, or chck_7M. What the repository has already is not pushed again.

    --space also makes a Space of the same name, where everybody can try the model in a browser, as with
    `tercet play`. --space-folder writes the Space into a folder instead, and uploads nothing.

    The access token is the one of `hf auth login`, or HF_TOKEN.

    Examples:
      tercet push runs/encoder-demo me/encoder-demo --dry-run
      tercet push runs/encoder-demo me/encoder-demo --private --message "First version"
    """
    if options.checkpoints:
        push_checkpoints(options)
        return
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


def push_checkpoints(options: Namespace) -> None:
    """Push a run's intermediate models.

    Raises:
        ValueError: There are none, or an option is for a single model.
    """
    from pathlib import Path

    from .tools.push.publication import describe, prepare, require_repo_id
    from .tools.push.revisions import missing_revisions, push_revisions, revisions_of

    singles = ("revision", "space", "space_folder")
    if given := [f"--{name}".replace("_", "-") for name in singles if getattr(options, name)]:
        raise ValueError(f"{given[0]} is for one model, but --checkpoints pushes several: leave one out")
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
    """Prepare the Space beside a model.

    Raises:
        ValueError: The model is to go to a branch, which no Space reads.
    """
    from .reports.finished_run import find_run
    from .tools.play.space import prepare_space

    if options.revision is not None:
        raise ValueError(
            f"--revision is {options.revision!r}, but a Space shows the main branch: leave --space or "
            "--revision out"
        )
    return prepare_space(publication, find_run(publication.folder))
