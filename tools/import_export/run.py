"""The commands `tercet import` and `tercet export`: a stock model in, or out, with a certificate."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...configs.documents import read_facts
from ...configs.messages import quietly
from ...data.files.atomic_writes import (
    delete_folder,
    explaining_a_full_disk,
    partial_path,
    removing_on_failure,
)
from ...data.files.locks import lock_of, locked, made
from ...modeling.saved.checkpoint import Checkpoint
from ...modeling.saved.model_folder import (
    CERTIFICATE,
    CONFIG,
    CONVERSION,
    load_tokenizer,
    require_fit,
    save_tokenizer,
)
from ...modeling.saved.saving import save_loadable
from ...modeling.saved.sentence_vectors import (
    MODULES,
    carried_files,
    find_vectors,
    vectors_of,
    without_vectors,
    write_files,
)
from ...modeling.stock.certificate import Certificate, certify
from ...modeling.stock.models import imported, load_stock, to_stock
from ...training.ownership import (
    mark,
    previous_of,
    require_apart,
    require_free,
    require_movable,
    set_aside,
    share_weights,
)
from .earlier_names import with_global_layers, with_rotary_fields


def import_model(
    source: str, output: str, *, revision: str | None = None, overwrite: bool = False
) -> Certificate:
    """Write the model of ours that a stock model is, its tokenizer, and the certificate that they are one.

    Args:
        source: A folder, or a repository on the Hub.
        revision: Branch, tag or commit on the Hub.
        overwrite: Replace what an earlier call has written there.
    """
    with claimed({"the model": source}, output, overwrite=overwrite) as folder:
        checkpoint = Checkpoint.open(source, revision)
        stock, tokenizer = load_stock(checkpoint), checkpoint.tokenizer
        require_fit(tokenizer, stock.config)
        remedy = f"remove {MODULES} from a copy to import the model alone"
        vectors = find_vectors(checkpoint.folder, remedy)
        ours = imported(stock, checkpoint)
        files = carried_files(vectors, checkpoint.folder, ours.config.hidden_size)
        return hand_over(ours, tokenizer, certify(stock, ours, tokenizer), folder, files)


def export_model(
    source: str, output: str, *, model_type: str | None = None, overwrite: bool = False
) -> Certificate:
    """Write the stock model that one of ours is, its tokenizer, and the certificate that they are one.

    Args:
        source: A folder with a model of ours, or a repository on the Hub.
        output: The folder to write, which stock transformers loads.
        model_type: The stock architecture; `None`: the first that is exactly this model.
        overwrite: Replace what an earlier call has written there.
    """
    with claimed({"the model": source}, output, overwrite=overwrite) as folder:
        checkpoint = Checkpoint.open(source)
        ours, tokenizer = checkpoint.transformer(), checkpoint.tokenizer
        require_fit(tokenizer, ours.config)
        vectors = vectors_of(ours, checkpoint.folder)
        ours = without_vectors(ours)
        stock = to_stock(ours, model_type)
        name_special_tokens(stock, tokenizer)
        files = carried_files(vectors, checkpoint.folder, ours.config.hidden_size)
        return hand_over(stock, tokenizer, certify(stock, ours, tokenizer), folder, files)


def name_special_tokens(stock: Any, tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Let a stock model know the tokenizer's tokens: BigBird's answers find the question by the separator.

    What its configuration assumes (ModernBERT: 50281) and the vocabulary does not have is left out.
    """
    for name in ("cls_token_id", "sep_token_id"):
        token = getattr(tokenizer, name, None)
        for each in (stock.config, stock):  # that head has read the configuration already
            if token is not None and hasattr(each, name):
                setattr(each, name, token)
    for name, value in vars(stock.config).items():
        if name.endswith("_token_id") and isinstance(value, int) and value >= stock.config.vocab_size:
            setattr(stock.config, name, None)


PROBE = "a b. Is 12 of them it?"
"""A text that tokenizers cut in different ways."""


@contextmanager
def claimed(sources: dict[str, str], output: str, *, overwrite: bool) -> Iterator[Path]:
    """Make sure that a folder may be written, and that nobody else writes it meanwhile."""
    require_free(output, overwrite=True)
    folder = Path(output).expanduser().resolve()
    with made(folder.parent), locked(lock_of(folder), output, "another folder"):
        require_free(output, overwrite=overwrite)
        if folder.exists() and any(folder.iterdir()):
            require_replaceable(folder)
            require_apart([folder, previous_of(folder)], sources)
        yield folder


def require_replaceable(folder: Path) -> None:
    """Raise a `ValueError` if a folder holds anything but what a command of this kind wrote."""
    if not any((folder / name).exists() for name in (CERTIFICATE, CONVERSION)):
        raise ValueError(
            f"{folder} holds no model that tercet import, export or convert wrote (it has neither "
            f"{CERTIFICATE} nor {CONVERSION}): choose another folder"
        )
    require_movable(folder)


def hand_over(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    certificate: Certificate,
    folder: Path,
    files: dict[str, Any],
) -> Certificate:
    """Write a folder at once, or nothing; with `files` of JSON that sentence-transformers reads."""
    if not certificate.holds:
        raise ValueError(certificate.verdict())

    def add(partial: Path) -> None:
        certificate.save(partial)
        config = read_facts(partial / CONFIG)
        is_stock = not config["model_type"].startswith("tercet")
        told = {CONFIG: with_global_layers(with_rotary_fields(config))} if is_stock else {}
        write_files(files | told, partial)

    write_model(model, tokenizer, folder, add)
    return certificate


def require_same_tokens(tokenizer: PreTrainedTokenizerBase, folder: Path, kind: str) -> None:
    """Raise a `ValueError` if transformers reads another tokenizer than was saved, as beside some types."""
    read = load_tokenizer(folder)
    if read is not None and read(PROBE)["input_ids"] != tokenizer(PROBE)["input_ids"]:
        raise ValueError(
            f"transformers reads the tokenizer beside a {kind} as {type(read).__name__}, with other tokens: "
            "export to another architecture, or import from a copy whose tokenizer it reads as it is"
        )


def write_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    folder: Path,
    add: Callable[[Path], None],
) -> None:
    """Write a model, its tokenizer and what `add` adds to their folder: all of it, or nothing."""

    def fill(partial: Path) -> None:
        with quietly():
            save_loadable(model, partial, with_code=True)
            if tokenizer is not None:
                save_tokenizer(tokenizer, partial)
                require_same_tokens(tokenizer, partial, model.config.model_type)
        add(partial)

    write_folder(folder, model.get_memory_footprint(), fill)


def write_folder(folder: Path, num_bytes: int, fill: Callable[[Path], None]) -> None:
    """Write a folder by `fill`, which is given an empty one: all of it, or nothing."""
    partial = partial_path(folder)
    if partial.exists():
        delete_folder(partial)
    remedy = "repeat the command, which has changed nothing"
    with explaining_a_full_disk(folder, num_bytes, remedy), removing_on_failure(partial):
        partial.mkdir()
        fill(partial)
        mark(partial)
        share_weights(partial)
        if folder.exists():
            if any(folder.iterdir()):
                require_replaceable(folder)  # who knows what was put there meanwhile
                set_aside(folder)
            else:
                folder.rmdir()
        partial.rename(folder)
