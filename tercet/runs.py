"""The commands of the four runs, and of the report that each ends with."""

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from .calls import command_for, load_recipe, run_recipe, say_that_libraries_load, values_of_rows
from .command import TRUST_REMOTE_CODE, Argument, OneOf, RecipeArgument, command, flag
from .finished_reports import find_finished, write_report
from .results import Result

__all__ = ["distill", "fewshot", "finetune", "pretrain", "report"]


def pretrain(
    recipe: Any, *overrides: str, resume: bool = False, overwrite: bool = False, **values: Any
) -> Result:
    """Pretrain a model on raw text, as `tercet pretrain` does.

        texts = {"corpus__train": "books.txt", "corpus__validation": "held-out.txt"}
        run = tercet.pretrain("decoder-demo", "training.steps=200", **texts, output="runs/short")
        run.scores["clm/perplexity"].value
        run.model(), run.tokenizer()

    Args:
        recipe: A shipped recipe's name, a YAML file, a dictionary, or a `PretrainingRecipe`.
        overrides: `"training.steps=100"`.
        resume: Continue from the newest checkpoint in the output folder, if there is one.
        overwrite: Replace an earlier run in the output folder.
        values: Overrides as keywords: `training__steps=100`.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the text or the output folder.
        FileNotFoundError: A named file does not exist.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
    """
    return run_recipe("pretrain", recipe, overrides, values, resume=resume, overwrite=overwrite)


@command(
    RecipeArgument("pretrain"),
    OneOf(
        flag("--overwrite", "replace an earlier run in the output folder"),
        flag("--resume", "continue from the newest checkpoint, if there is one"),
        flag("--explain", "only show all values of the recipe"),
    ),
    function=pretrain,
)
def pretrain_command(options: Namespace) -> None:
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
    finish(pretrain(options.recipe, *options.overrides, resume=options.resume, overwrite=options.overwrite))


def finetune(
    recipe: Any,
    *overrides: str,
    rows: Any = None,
    model: Any = None,
    resume: bool = False,
    overwrite: bool = False,
    **values: Any,
) -> Result:
    """Fine-tune a pretrained model on labelled rows, as `tercet finetune` does.

        model = "runs/reviews/model"
        run = tercet.finetune("text-classification", rows=frame, model=model, output="runs/mine")
        run.scores["accuracy"].interval

    Args:
        recipe: A shipped recipe's name, a YAML file, a dictionary, or a `FineTuningRecipe`.
        overrides: `"training.learning_rate=3e-5"`.
        rows: The labelled rows (`data.train`): a DataFrame, a Dataset, an Arrow table, a list of dictionaries
            or a path. Or several of them by the names train, validation and test: a `DatasetDict`, say.
            Without validation rows, a tenth of the training rows is held out.
        model: The pretrained model (`model.path`): a folder, a name on the Hub, or the `Result` of a run.
        resume: Continue an earlier run in the output folder, which must have read the same rows.
        overwrite: Replace an earlier run in the output folder.
        values: Overrides as keywords: `training__epochs=5`.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the rows, the model or the output folder.
        FileNotFoundError: A named file or model does not exist.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
    """
    given = values_of_rows("data", rows) | ({} if model is None else {"model__path": model})
    return run_recipe("finetune", recipe, overrides, given | values, resume=resume, overwrite=overwrite)


@command(
    RecipeArgument("finetune"),
    OneOf(
        flag("--overwrite", "replace an earlier run in the output folder"),
        flag("--resume", "continue from the newest checkpoint, if there is one"),
        flag("--explain", "only show what would be read, learned and chosen"),
    ),
    function=finetune,
)
def finetune_command(options: Namespace) -> None:
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
        say_that_libraries_load()
        from .finetune.run import explain

        print(explain(load_recipe(options.recipe, *options.overrides, command="finetune")))
        return
    finish(finetune(options.recipe, *options.overrides, resume=options.resume, overwrite=options.overwrite))


def distill(
    recipe: Any,
    *overrides: str,
    rows: Any = None,
    resume: bool = False,
    overwrite: bool = False,
    **values: Any,
) -> Result:
    """Distill a model into a smaller one, as `tercet distill` does.

        teacher = "runs/reviews/model"
        student = tercet.distill("task-distilled", rows=frame, task__teacher=teacher, output="runs/small")
        student.scores["student: share kept"].interval

    Args:
        recipe: A shipped recipe's name, a YAML file, a dictionary, or a `DistillationRecipe`.
        overrides: `"student.layers=first"`.
        rows: The labelled rows of the step on rows (`task.data`), as in `finetune`.
        resume: Continue an earlier run in the output folder.
        overwrite: Replace an earlier run in the output folder.
        values: Overrides as keywords: `general__teacher="runs/encoder-english/model"`.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the models, the data or the output folder.
        FileNotFoundError: A named file or model does not exist.
        KeyboardInterrupt: A signal stopped the run; its checkpoint is written.
    """
    given = values_of_rows("task__data", rows)
    return run_recipe("distill", recipe, overrides, given | values, resume=resume, overwrite=overwrite)


@command(
    RecipeArgument("distill"),
    OneOf(
        flag("--overwrite", "replace an earlier run in the output folder"),
        flag("--resume", "continue from the newest checkpoint, if there is one"),
    ),
    function=distill,
)
def distill_command(options: Namespace) -> None:
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
    finish(distill(options.recipe, *options.overrides, resume=options.resume, overwrite=options.overwrite))


def fewshot(
    recipe: Any,
    *overrides: str,
    models: Any = None,
    rows: Any = None,
    overwrite: bool = False,
    trust_remote_code: bool = False,
    **values: Any,
) -> Result:
    """Evaluate models with zero-, one- and few-shot prompts, as `tercet fewshot` does.

        models = ["runs/books/model", "runs/short/model"]
        run = tercet.fewshot(recipe, rows=frame[:20], models=models, output="runs/shots")
        run.scores["runs/short/model, K = 0"].interval

    Args:
        recipe: A shipped recipe's name, a YAML file, a dictionary, or a `FewShotRecipe`.
        overrides: `"prompting.num_fewshot=[0,1,4]"`.
        models: What is evaluated: a model or several, as folders, names on the Hub, or `Result`s.
        rows: The rows that are evaluated (`data.test`), as one table in `finetune`.
        overwrite: Replace an earlier evaluation in the output folder.
        trust_remote_code: Run the code that a model brings along.
        values: Overrides as keywords: `prompting__num_fewshot=[0, 1, 4]`.

    Raises:
        ValueError: Parts of the recipe do not fit each other, the rows, a model or the output folder.
        FileNotFoundError: A named file or model does not exist.
    """
    given: dict[str, Any] = {}
    if models is not None:
        given["models"] = [models] if isinstance(models, str | Path | Result) else list(models)
    if rows is not None:
        given["data__test"] = rows
    options = {"overwrite": overwrite, "trust_remote_code": trust_remote_code}
    return run_recipe("fewshot", recipe, overrides, given | values, **options)


@command(
    RecipeArgument("fewshot"),
    Argument(
        "--model",
        action="append",
        metavar="MODEL",
        help="model to evaluate: a folder or a Hub name; repeatable",
    ),
    flag("--explain", "only show which tokens are scored"),
    flag("--overwrite", "replace an earlier evaluation"),
    TRUST_REMOTE_CODE,
    function=fewshot,
)
def fewshot_command(options: Namespace) -> None:
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
    finish(fewshot(options.recipe, *options.overrides, models=models, **choices))


def explained(source: str, overrides: list[str], models: list[str] | None, trust_remote_code: bool) -> str:
    """Return which tokens of a few-shot recipe's prompts are scored."""
    from .checks import check_recipe

    given = overrides if models is None else [*overrides, f"models={json.dumps(models)}"]
    check_recipe("fewshot", source, given)
    say_that_libraries_load()
    from .fewshot.explanation import explain

    recipe = load_recipe(source, *given, command="fewshot")
    return explain(recipe, trust_remote_code=trust_remote_code)


def report(folder: Any) -> Result:
    """Make the report of a finished run again from what lies in its folder, as `tercet report` does.

        tercet.report("runs/reviews").report

    Args:
        folder: Folder of a run of `pretrain`, `finetune`, `distill` or `fewshot`.

    Raises:
        ValueError: It is no folder of a finished run, or what the run has read has changed.
        FileNotFoundError: What the run has read is not there any more.
    """
    path = find_finished(Path(folder.folder if isinstance(folder, Result) else folder).expanduser())
    command = command_for(str(path / "recipe.yaml"), ())
    say_that_libraries_load()
    write_report(command, path)
    return Result(command, path)


@command(
    Argument("finished", metavar="FOLDER", help="the output of a run"),
    function=report,
)
def report_command(options: Namespace) -> None:
    """Make the report of a finished run again, from what the run left in its folder.

    A run ends with its report. This makes the same page of the model and the facts in the folder: where the
    report could not be made, or was deleted. Rows and models that the run has read are read again, from where
    its recipe says. Prints the path of the page.

    Examples:
      tercet report runs/reviews
      tercet report runs/copa
    """
    result = report(options.finished)
    for line in result.ending():
        print(line, file=sys.stderr)
    print(result.report)


def finish(result: Result) -> None:
    """Tell how a run ended, and print the folder of the finished model, or of the evaluation."""
    from accelerate import PartialState

    if result.command == "fewshot" or PartialState().is_main_process:
        for line in result.ending():
            print(line, file=sys.stderr)
        print(result.folder if result.command == "fewshot" else result.model_path)
