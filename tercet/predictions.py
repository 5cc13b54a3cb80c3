"""The commands that let finished models answer: rows, vectors of texts, and a page to try them."""

import json
import os
import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .calls import as_model, say_that_libraries_load
from .command import PRECISION, Argument, command, flag
from .rows_in_memory import as_dataset, texts_in

if TYPE_CHECKING:
    import numpy as np

__all__ = ["embed", "predict"]


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
    from .data.files.rows import read_file
    from .finetune.prediction import Predictor, predict_rows
    from .finetune.typed_rows import rows_of_texts
    from .modeling.saved.checkpoint import Checkpoint

    name, texts = str(as_model(model)), texts_in(rows)
    predictor = Predictor(Checkpoint.open(name), precision)
    if isinstance(rows, Path):
        return predict_rows(predictor, read_file(str(rows), predictor.columns), str(rows))
    if texts == []:
        return []
    given = rows if texts is None else rows_of_texts(predictor.task.recipe, texts, name)
    return predict_rows(predictor, as_dataset(given, "rows"), "rows")


@command(
    Argument("model", metavar="MODEL", help="a folder that `tercet finetune` wrote, or a Hub name"),
    Argument(
        "rows",
        nargs="+",
        metavar="INPUT",
        help="a text for each column, or a file of rows: .jsonl, .csv, .tsv, .parquet; - reads JSON lines "
        "from stdin",
    ),
    Argument(
        "--output",
        help="where to write the rows of a file with their predictions: .csv, .tsv, .jsonl, .json, .parquet "
        "(predictions.jsonl); - writes JSON lines to stdout",
    ),
    PRECISION,
    flag("--overwrite", "replace an earlier file"),
    function=predict,
)
def predict_command(options: Namespace) -> None:
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
    from .checks import check_models, check_rows

    check_models(options.model, has_learned=True)
    if is_text(options.rows):
        if options.output or options.overwrite:
            raise ValueError(
                "--output and --overwrite are about files of rows, and the prediction of a text is printed: "
                "leave them out"
            )
        say_that_libraries_load()
        predictions = predict(options.model, [tuple(options.rows)], precision=options.precision)
        print(json.dumps(predictions[0], ensure_ascii=False))
        return
    (source,) = options.rows
    output = options.output or "predictions.jsonl"
    from .data.files.row_writers import require_ending

    if output != "-":
        require_ending(output)
    if source != "-":
        check_rows(options.model, source)
    say_that_libraries_load()
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

    from .data.files.reading import naming_keys, require_columns
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


@command(
    Argument("model", metavar="MODEL", help="Tercet's, stock, or of sentence-transformers"),
    Argument(
        "file",
        metavar="FILE",
        help="texts: .txt (one in a line), .csv, .tsv, .jsonl, .parquet; - reads JSON lines from stdin",
    ),
    Argument("--output", default="embeddings.npy", metavar="FILE", help=".npy or .parquet (%(default)s)"),
    Argument("--column", default="text", metavar="NAME", help="column of the texts (%(default)s)"),
    Argument(
        "--prompt", metavar="NAME", help="a prompt of the model's folder, such as query (its default one)"
    ),
    PRECISION,
    flag("--index", "also write an index of nearest neighbours"),
    flag("--overwrite", "replace earlier files"),
    function=embed,
)
def embed_command(options: Namespace) -> None:
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
    from .checks import check_models

    check_models(options.model)
    if options.file != "-":
        from .data.files.reading import TEXT_LINES, find_file

        find_file(options.file, others=TEXT_LINES)
    say_that_libraries_load()
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


@command(
    Argument("model", metavar="MODEL", nargs="+", help="folders or Hub names; several are compared"),
    Argument("--port", type=int, help="port of the page (the first free one from 7860)"),
)
def play_command(options: Namespace) -> None:
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

    from .checks import check_models

    check_models(*options.model, of_run=True)
    if find_spec("gradio") is None:
        raise ValueError("the page needs Gradio, not installed here: pip install 'tercet[play]'")
    say_that_libraries_load()
    from .tools.play.page import serve
    from .tools.play.sessions import open_session

    serve(open_session(options.model), port=options.port)
