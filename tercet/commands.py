"""The commands of `tercet`, each of which imports what it needs. A command's docstring is its help."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .endings import distillation_ending, finetuning_ending, pretraining_ending, prompting_ending, tell


def plan(options: Namespace) -> None:
    """Estimate the FLOPs, memory, communication, time and cost of a run on given machines.

    Reads no text and trains nothing. Prints parameters and FLOPs. For one device, DDP, ZeRO and FSDP2 it
    also prints the memory of a device by component, its communication, the speed at the share of peak FLOPs
    that similar models have reached (MFU), and device-hours. If a run does not fit, it prints what would.
    The tables are Markdown.

    Without `device`, the device of this machine is meant, and its speed is measured in a second. The numbers
    of others are their makers': a100, h100, h200, rtx3090, rtx4090, rtx5090, m1, m1-max, m2, m2-max, cpu.

    key=value describes the machines: devices, device, mfu, peak_flops, device_memory, usable_memory,
    bandwidth, devices_per_node, price_per_device_hour. Keys with a dot override values of the recipe, as in
    `tercet pretrain`.

    Examples:
      tercet plan encoder-english
      tercet plan my-recipe.yaml devices=8 device=a100 mfu=0.35 price_per_device_hour=1.80
    """
    from .planning.machines import THIS_MACHINE, load_plan
    from .planning.plan import plan_run
    from .planning.report import report_plan

    recipe, machines = load_plan(options.recipe, options.overrides)
    if machines.device == THIS_MACHINE:
        print("measuring this machine ...", file=sys.stderr)
    print(report_plan(plan_run(recipe, machines)))


def tokenizer(options: Namespace) -> None:
    """Train the tokenizer that a recipe describes, and nothing else.

    Reads the recipe's training corpus and writes OUTPUT/tokenizer, a folder that AutoTokenizer loads. Other
    recipes can share it with `tokenizer.path`. `tercet pretrain` trains a tokenizer itself if the recipe has
    no `tokenizer.path`.

    Examples:
      tercet tokenizer encoder-demo
      tercet tokenizer my-recipe.yaml tokenizer.kind=unigram tokenizer.vocab_size=16000 output=runs/unigram
    """
    from .configs.recipe import load_recipe
    from .pretraining.recipe import PretrainingRecipe
    from .pretraining.run import train_recipe_tokenizer

    recipe = load_recipe(PretrainingRecipe, options.recipe, options.overrides)
    print(train_recipe_tokenizer(recipe, overwrite=options.overwrite))


def pretrain(options: Namespace) -> None:
    """Pretrain a model on raw text.

    Trains or loads the tokenizer, tokenizes the corpus once, trains, evaluates, and writes OUTPUT/model: a
    folder with the model, the tokenizer and the recipe, which the Auto classes load. RECIPE is the name of a
    shipped recipe (`tercet recipes` lists them) or a YAML file, and key=value overrides any of its values.
    On several devices: `accelerate launch -m tercet pretrain RECIPE`.

    Examples:
      tercet pretrain encoder-demo training.steps=200 output=runs/short
      tercet pretrain my-recipe.yaml corpus.train=books.txt corpus.validation=held-out.txt --resume
    """
    from .pretraining.recipe import PretrainingRecipe
    from .pretraining.run import pretrain as run

    train(PretrainingRecipe, run, pretraining_ending, options)


def train(
    cls: type, run: Callable[..., Path], ending: Callable[[Path], Iterator[str]], options: Namespace
) -> None:
    """Carry out the run of a recipe, tell how it ended, and print the folder of the finished model."""
    from accelerate import PartialState

    from .configs.recipe import load_recipe

    recipe = load_recipe(cls, options.recipe, options.overrides)
    folder = run(recipe, resume=options.resume, overwrite=options.overwrite)
    if PartialState().is_main_process:
        tell(ending, recipe.folder)
        print(folder)


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
    from .configs.recipe import load_recipe
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
    errors.

    Examples:
      tercet finetune text-classification model.path=runs/encoder-demo/model data.train=reviews.csv
      tercet finetune my-recipe.yaml training.seeds=[0,1,2] training.learning_rate=3e-5 --resume
    """
    from .finetune.recipe import FineTuningRecipe
    from .finetune.run import finetune as run

    train(FineTuningRecipe, run, finetuning_ending, options)


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
    from .distill.recipe import DistillationRecipe
    from .distill.run import distill as run

    train(DistillationRecipe, run, distillation_ending, options)


def predict(options: Namespace) -> None:
    """Predict the rows of a file with a fine-tuned model, and write one line of JSON per row.

    Rows need the columns that the model reads, and no labels. They are read and written a thousand at a time,
    so a file may have any size. After an interruption, --resume continues with the rows that are missing.

    Examples:
      tercet predict runs/reviews/model new-reviews.csv --output labels.jsonl
      echo '{"text": "I liked it."}' | tercet predict runs/reviews/model - --output -
    """
    import sys

    from .finetune.prediction import predict_file

    rows = predict_file(
        options.model,
        options.file,
        options.output,
        resume=options.resume,
        overwrite=options.overwrite,
        precision=options.precision,
    )
    print(f"{rows:,} {'row' if rows == 1 else 'rows'}", file=sys.stderr)


def fewshot(options: Namespace) -> None:
    """Evaluate pretrained encoders, decoders and seq2seq models with zero-, one- and few-shot prompts.

    A recipe defines the rows, the templates of prompts and answers, and the number of demonstrations in a
    prompt (`prompting.num_fewshot`). Answers are scored by the log-likelihood of the continuation (decoders)
    or of the target (sequence-to-sequence models), or by pseudo-log-likelihood (encoders). Weights do not
    change. Writes OUTPUT/report.html, results.json and one line for every item. Files of rows are searched
    in data.folder. --explain only shows which tokens are scored.

    Examples:
      tercet fewshot copa --model runs/decoder-english/model data.folder=data
      tercet fewshot my-task.yaml --model gpt2 --model runs/mine/model prompting.num_fewshot=[0,1,4] --explain
    """
    from .configs.recipe import load_recipe
    from .fewshot.explanation import explain
    from .fewshot.recipe import FewShotRecipe
    from .fewshot.run import fewshot as run

    models = [] if not options.model else [f"models={json.dumps(options.model)}"]
    recipe = load_recipe(FewShotRecipe, options.recipe, [*models, *options.overrides])
    trusted = options.trust_remote_code
    if options.explain:
        print(explain(recipe, trust_remote_code=trusted))
        return
    folder = run(recipe, resume=options.resume, overwrite=options.overwrite, trust_remote_code=trusted)
    tell(prompting_ending, folder)
    print(folder)


if TYPE_CHECKING:
    from .hub.publication import Publication


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
    from .stock.run import import_model

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
    ONNX Runtime, the configuration and the tokenizer; with --int8 also graphs with 8-bit integers. All
    Transformers of Tercet have graphs. They are compared with the model, and timed on this CPU. Needs
    `pip install 'tercet[onnx]'`.

    Examples:
      tercet export runs/my-decoder/model exported/my-decoder
      tercet export runs/reviews/model exported/reviews --onnx --int8
    """
    from .stock.run import export_model

    if options.int8 and not options.onnx:
        raise ValueError("--int8 is about graphs of ONNX: add --onnx")
    if options.onnx:
        from .conversion.onnx_graphs import export_graphs, table

        graphs = export_graphs(options.model, options.output, int8=options.int8, overwrite=options.overwrite)
        print(table(graphs))
        return
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
    from .conversion.run import convert_model

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
    from .doctor.diagnosis import diagnose, diagnosis_as_json, report_diagnosis

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
    from .hub.publication import describe, prepare
    from .hub.push import push as send

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
    from .play.space import prepare_space
    from .storage.finished_run import find_run

    if options.revision is not None:
        raise ValueError(
            f"--revision is {options.revision!r}, but a Space shows the main branch: leave --space or "
            "--revision out"
        )
    return prepare_space(publication, find_run(publication.folder))
