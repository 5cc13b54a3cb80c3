"""The commands as functions: `tercet.pretrain(...)`, `tercet.finetune(...)`, ... The command line calls them.

    name, path, dictionary or recipe -> overrides -> checked -> run -> a `Result`

An override is a text as on the command line, `"training.steps=100"`, or a keyword, whose dots are written as
two underscores: `training__steps=100`. Either replaces what stands under its key. Where a keyword names a
file of rows or a text, it may also be a DataFrame, a Dataset or a list of dictionaries (`rows_in_memory.py`),
and where it names a model, the `Result` of an earlier run.

A run writes its progress to stderr, and warnings as Python's own. Nothing is put on a logger, and a run in a
process changes nothing for the next one there. Ctrl-C, or a notebook's stop button, ends a step, writes a
checkpoint and raises `KeyboardInterrupt`: call the same again with `resume=True`.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .finished_reports import find_finished, report_after, write_report
from .results import Result
from .rows_in_memory import SPLITS, as_dataset, calling, is_table, keep, splits_of, texts_in

if TYPE_CHECKING:
    import numpy as np

    from .tools.plan.plan import Plan

ROWS = (*SPLITS, "demonstrations")
"""Keys that name rows, under whatever parts of a recipe."""


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
    return carry_out("pretrain", recipe, overrides, values, resume=resume, overwrite=overwrite)


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
    return carry_out("finetune", recipe, overrides, given | values, resume=resume, overwrite=overwrite)


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
    return carry_out("distill", recipe, overrides, given | values, resume=resume, overwrite=overwrite)


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
    return carry_out("fewshot", recipe, overrides, given | values, **options)


def report(folder: Any) -> Result:
    """Make the report of a finished run again from what lies in its folder, as `tercet report` does.

        tercet.report("runs/reviews").report

    Args:
        folder: Of a run of `pretrain`, `finetune`, `distill` or `fewshot`.

    Raises:
        ValueError: It is no folder of a finished run, or what the run has read has changed.
        FileNotFoundError: What the run has read is not there any more.
    """
    path = find_finished(Path(folder.folder if isinstance(folder, Result) else folder).expanduser())
    command = command_for(str(path / "recipe.yaml"), ())
    say_that_libraries_load()
    write_report(command, path)
    return Result(command, path)


def plan(recipe: Any, *overrides: str, **values: Any) -> "Plan":
    """Estimate the FLOPs, memory, communication, time and cost of a pretraining run, as `tercet plan` does.

        print(tercet.plan("decoder-english", devices=8, device="a100"))

    Args:
        recipe: A shipped recipe's name, a YAML file, a dictionary, or a `PretrainingRecipe`.
        overrides: As on the command line.
        values: Overrides as keywords; `devices`, `device`, `mfu`, ... describe the machines. Without
            `device`, this machine is meant, and measured in a second.

    Returns:
        Parameters, operations, and what each layout on the devices costs (`Plan.outlooks`). `str` of it is
        the report; a notebook shows it as tables.

    Raises:
        ValueError: An unknown recipe, key or device, or an impossible value.
    """
    from .checks import check_recipe

    with written_overrides(overrides, values) as given:
        check_recipe("plan", recipe, given)
        from .tools.plan.machines import THIS_MACHINE, load_plan
        from .tools.plan.plan import plan_run

        loaded, machines = load_plan(recipe, given)
        if machines.device == THIS_MACHINE:
            print("measuring this machine ...", file=sys.stderr)
        return plan_run(loaded, machines)


def prepare(recipe: Any, *overrides: str, overwrite: bool = False, **values: Any) -> str:
    """Tokenize a corpus once, in shards, as `tercet prepare` does.

        texts = {"corpus__path": "books.txt", "tokenizer": "runs/decoder-demo/tokenizer"}
        manifest = tercet.prepare("prepare-text", workers=4, output="prepared/books", **texts)
        tercet.pretrain("decoder-demo", corpus__train=manifest)

    Args:
        recipe: A shipped recipe's name, a YAML file, a dictionary, or a `PreparationRecipe`.
        overrides: `"workers=4"`.
        overwrite: Replace another corpus in the output folder.
        values: Overrides as keywords: `corpus__path="books.txt"`.

    Returns:
        The path or address of the manifest, which `corpus.train` of a pretraining recipe takes.

    Raises:
        ValueError: Parts of the recipe or the text are not possible, the folder holds another corpus, or
            datatrove is not installed.
        FileNotFoundError: A named file does not exist.
    """
    from .checks import check_recipe
    from .configs.recipe import load_recipe as load
    from .kinds import kind_of

    with written_overrides(overrides, values) as given:
        check_recipe("prepare", recipe, given)
        if find_spec("datatrove") is None:
            raise ValueError("a corpus is prepared by datatrove: pip install 'tercet[prepare]'")
        say_that_libraries_load()
        kind = kind_of("prepare")
        return kind.run("prepare")(load(kind.recipe, recipe, given), overwrite=overwrite)


def predict(model: Any, rows: Any, *, precision: str = "fp32") -> list[dict[str, Any]]:
    """Predict rows with a fine-tuned model, as `tercet predict` does.

        tercet.predict("runs/reviews/model", ["I liked it.", "A waste of time."])
        tercet.predict("runs/reviews/model", frame)

    Args:
        model: Folder or Hub name of a model of `tercet finetune`, or the `Result` of a run.
        rows: A text or several (a list, a column of a DataFrame, ...); texts for each column that the model
            reads, as tuples (a question and its context); dictionaries, a DataFrame, a Dataset or an Arrow
            table with the columns that the model reads; or a `Path` to a file of such rows. A `str` is always
            a text. A tagger's text is cut into words and marks.
        precision: `fp32`, or `bf16` for the products.

    Returns:
        A prediction for each row, in their order, with the keys that `tercet predict` writes.

    Raises:
        FileNotFoundError: There is no such model or file.
        ValueError: The model was not fine-tuned, or a row lacks what it reads.
    """
    from .data.files.row_files import read_file
    from .finetune.prediction import Predictor, predict_rows
    from .finetune.text_rows import rows_of_texts
    from .modeling.saved.checkpoint import Checkpoint

    name, texts = str(as_model(model)), texts_in(rows)
    predictor = Predictor(Checkpoint.open(name), precision)
    if isinstance(rows, Path):
        return predict_rows(predictor, read_file(str(rows), predictor.columns), str(rows))
    if texts == []:
        return []
    given = rows if texts is None else rows_of_texts(predictor.task.recipe, texts, name)
    return predict_rows(predictor, as_dataset(given, "rows"), "rows")


def embed(
    model: Any, texts: Any, *, column: str = "text", prompt: str | None = None, precision: str = "fp32"
) -> "np.ndarray":
    """Return a vector for each text, as `tercet embed` and sentence-transformers do.

        vectors = tercet.embed("sentence-transformers/all-MiniLM-L6-v2", ["a cat", "a dog"])
        vectors @ vectors.T

    Args:
        model: Folder or Hub name of a model of Tercet's, of a stock one or of sentence-transformers, or the
            `Result` of a run.
        texts: A text or several (a list, a column of a DataFrame, ...); dictionaries, a DataFrame, a Dataset
            or an Arrow table with a column of texts; or a `Path` to a file of them. A `str` is always a text.
        column: The column, where there are several.
        prompt: Name of a prompt of the model's folder, such as `query`.
        precision: `fp32`, or `bf16` for the products.

    Returns:
        (E, C), float32: a row for each text, in their order.

    Raises:
        FileNotFoundError: There is no such model or file.
        ValueError: The model makes no vectors, or a row has no text.
    """
    import numpy as np

    from .data.files.record_files import naming_keys, require_columns
    from .tools.embed.embedding import load_embedder
    from .tools.embed.vector_files import in_batches, texts_of_file

    if isinstance(texts, Path):
        batches = [*texts_of_file(str(texts), column)]
    else:
        values = texts_in(texts)
        if values is None:
            table = as_dataset(texts, "texts")
            with naming_keys({column: "column"}):
                require_columns("texts", table.column_names, [column])
            values = table[column]
        batches = [*in_batches(values, "texts", column)]
    embedder = load_embedder(str(as_model(model)), prompt=prompt, precision=precision)
    return np.concatenate([np.empty((0, embedder.width), np.float32), *map(embedder.embed, batches)])


def load_recipe(source: Any, *overrides: str, command: str | None = None, **values: Any) -> Any:
    """Load a recipe of any kind, checked, as the frozen dataclass that `command` carries out.

        recipe = tercet.load_recipe("decoder-demo", training__steps=100)
        recipe.training.steps
        tercet.plan(recipe, device="a100")

    Args:
        source: A shipped recipe's name, a YAML file, a dictionary or a recipe.
        overrides: `"training.steps=100"`.
        command: `pretrain`, `prepare`, `finetune`, `distill` or `fewshot`; by default, the one whose recipes
            have the keys of this one.
        values: Overrides as keywords.

    Raises:
        ValueError: Unknown recipe or key, missing key, or a value of the wrong type or out of range.
    """
    from .configs.recipe import load_recipe as load
    from .kinds import KINDS, kind_of

    if command not in (None, *KINDS):
        raise ValueError(f"command is {command!r}: choose one of {', '.join(KINDS)}")
    with written_overrides(overrides, values) as given:
        return load(kind_of(command or command_for(source, given)).recipe, source, given)


def command_for(source: Any, overrides: Sequence[str]) -> str:
    """Find the command whose recipes have the keys of this one.

    Raises:
        ValueError: There is none, or several.
    """
    from .configs.recipe import read_recipe
    from .kinds import KINDS, command_of, commands_for

    if isinstance(source, str) and (command := command_of(source)):
        return command
    name, data = read_recipe(source, overrides)
    fitting = commands_for(set(data))
    if len(fitting) != 1:
        found = f"is one of {' or '.join(fitting)}" if fitting else f"has the keys {', '.join(data)}"
        raise ValueError(f"recipe {name} {found}: say which with command=, one of {', '.join(KINDS)}")
    return fitting[0]


def carry_out(
    command: str,
    source: Any,
    overrides: Sequence[str],
    values: Mapping[str, Any],
    *,
    overwrite: bool,
    **options: Any,
) -> Result:
    """Check and carry out the recipe of a command, and return what it came to."""
    from .checks import check_recipe
    from .configs.recipe import load_recipe as load
    from .kinds import kind_of

    require_arguments(command, values)
    bound_spinning()
    with written_overrides(overrides, values) as given:
        resume = options.get("resume", False)
        check_recipe(command, source, given, writes=True, resume=resume, overwrite=overwrite)
        kind = kind_of(command)
        say_that_libraries_load()
        recipe = load(kind.recipe, source, given)
        kind.run(command)(recipe, overwrite=overwrite, **options)
    report_after(command, recipe.folder)
    return Result(command, recipe.folder)


def require_arguments(command: str, values: Mapping[str, Any]) -> None:
    """Refuse a keyword that is no key of a command's recipe, and nearly an argument of its function.

    Raises:
        ValueError: The first such keyword.
    """
    from .kinds import kind_of

    arguments = signature(globals()[command]).parameters
    known = {*arguments, *kind_of(command).schema.names}
    for keyword in values:
        is_part = "__" in keyword or keyword in known
        if not is_part and (near := get_close_matches(keyword, arguments, n=1)):
            raise ValueError(
                f"{keyword} is neither an argument of tercet.{command} nor a key of its recipe; "
                f"did you mean {near[0]}?"
            )


def bound_spinning() -> None:
    """Let threads that wait for each other soon sleep; to be called before torch is imported.

    GNU's OpenMP lets them spin 300,000 times, which takes the cores from other programs, and from the very
    thread that is waited for. After 10,000 nothing is lost on a quiet machine, and far less on a busy one
    (docs/performance.md). What the user has set stays.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "10000"


def say_that_libraries_load() -> None:
    """Say what a command waits for first, if torch is not imported yet."""
    if "torch" not in sys.modules:
        print("loading torch and transformers ...", file=sys.stderr, flush=True)


def values_of_rows(part: str, rows: Any) -> dict[str, Any]:
    """Name tables of rows by the keys of a recipe's part."""
    return {} if rows is None else {f"{part}__{split}": own for split, own in splits_of(rows).items()}


@contextmanager
def written_overrides(overrides: Sequence[str], values: Mapping[str, Any]) -> Iterator[list[str]]:
    """Write keywords as the command line has overrides; rows in memory become files.

    What is wrong with such rows is said inside by the key and the type that they were given with.

    Raises:
        ValueError: An override is no text, or no recipe can have a value.
    """
    from .configs.recipe import written

    for override in overrides:
        if not isinstance(override, str):
            raise ValueError(
                f"override {override!r:.80}: write a text, as in 'training.steps=100', or a keyword"
            )
    given, files = [*overrides], dict[str, str]()
    for keyword, value in values.items():
        key = keyword.replace("__", ".")
        if is_table(value) or (key.rpartition(".")[2] in ROWS and holds_rows(key, value)):
            name = f"{key} (a {type(value).__name__})"
            value = keep(value, name)
            files[value] = name
        try:
            given.append(f"{key}={written(as_model(value))}")
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    with calling(files):
        yield given


def holds_rows(key: str, value: Any) -> bool:
    """Return whether the value of a key that names rows holds them itself; a corpus may also list texts."""
    is_listed = isinstance(value, list) and all(isinstance(row, Mapping) for row in value)
    return is_listed and not ("corpus." in key and all("path" in row for row in value))


def as_model(value: Any) -> Any:
    """Put the folder of a finished model in the place of a run's result, also within a list."""
    if isinstance(value, Result):
        return str(value.model_path)
    return [*map(as_model, value)] if isinstance(value, list) else value
