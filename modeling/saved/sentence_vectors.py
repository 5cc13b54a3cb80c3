"""What sentence-transformers does to a model's states to make a vector, as the model's folder says it.

    modules.json                         Transformer, Pooling and perhaps Normalize, in this order
    1_Pooling/config.json                how the states of a text become one vector
    sentence_bert_config.json            tokens of a text, at most
    config_sentence_transformers.json    what is put before queries and documents (prompts)

Ours pool the states of the last layer and give the vector length 1. A folder that says more (a dense layer,
the maximum, weighted means) is refused: without it, the vectors would be others.

A cross-encoder makes no vectors, and has a Transformer alone; what becomes of its scores goes along.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...configs.documents import read_facts
from ...configs.named_files import files_below
from ..configuration_neural import ClassifierPooling
from ..heads.tasks import TercetForSentenceEmbedding
from ..pretrained import TercetPreTrainedModel

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"
OF_TRANSFORMER = "sentence_*_config.json"
"""Names that earlier versions gave the same file, each for its architecture."""

OF_MODULES = (
    *("config.json", "*_config.json", "model*.safetensors*", "pytorch_model.bin", "tokenizer.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model"),
)
"""Names of the files that modules have in folders of their own; a Transformer there has a tokenizer, too."""

CROSS_ENCODER = "CrossEncoder"
"""What the settings of a model that scores pairs say that it is."""

PATHS = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
"""sentence-transformers' names of what makes a vector -> folders of their settings."""

POOLINGS: dict[str, ClassifierPooling] = {"cls": "first", "mean": "mean", "lasttoken": "last"}
"""A pooling's name there -> `classifier_pooling`."""

OLD_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
"""Truths by which versions before 6 name the pooling, and later ones read it -> its name."""

CHANGES = ("do_lower_case", "config_args", "config_kwargs", "processing_kwargs", "truncate_dim")
"""Settings under which a model, or what is made of a text, is another one."""

TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}
"""How later versions say that states are pooled; they can give other outputs, and write texts as chats."""

DOCUMENTS = ("document", "passage", "corpus")
"""What the prompt of documents may be called, the first that is there."""


class UnlikeVectorsError(ValueError):
    """A folder makes its vectors by what Tercet does not have; sentence-transformers does."""


@dataclass(frozen=True)
class SentenceVectors:
    """How a text becomes a vector."""

    pooling: ClassifierPooling
    """`mean`, `first` or `last`: what stands for a text."""
    query_prompt: str = ""
    """What is put before a query."""
    document_prompt: str = ""
    """What is put before a document."""
    max_length: int | None = None
    """Tokens of a text, at most, if the folder says so."""
    is_normalized: bool = True
    """Whether vectors have length 1."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the folder says of prompts and of how vectors are compared, in its words."""


def find_vectors(
    folder: Path, remedy: str, pooling: ClassifierPooling | None = None
) -> SentenceVectors | None:
    """Read how a folder makes vectors; `None` if it has nothing of sentence-transformers', or scores pairs.

    `remedy` says what to do about modules that we do not have; `pooling` stands for what they do to states. A
    warning tells of vectors that are compared by something else than cosines.

    Raises:
        UnlikeVectorsError: The vectors are none that ours can have.
    """
    if not (folder / MODULES).exists():
        return None
    settings, modules = read_facts(folder / SETTINGS), read_modules(folder)
    if settings.get("model_type") == CROSS_ENCODER:
        if list(modules) != [("Transformer", "")]:
            raise unlike(folder, " + ".join(name for name, _ in modules), remedy)
        return None
    transformer = read_facts(next(files_of_transformer(folder), folder / TRANSFORMER))
    prompts: dict[str, str] = settings.get("prompts") or {}
    default = prompts.get(settings.get("default_prompt_name") or "", "")
    documents = next((prompts[name] for name in DOCUMENTS if name in prompts), default)
    if pooling is None:
        pooling = known_pooling(folder, modules, remedy, has_prompts=any(prompts.values()))
        changes = [name for name in CHANGES if (settings | transformer).get(name)]
        if transformer.get("modality_config", {}).get("text", TEXT) != TEXT:
            changes.append("modality_config")
        if changes:
            raise unlike(folder, f"settings of its own ({', '.join(changes)})", remedy)
    is_normalized = "Normalize" in dict(modules)
    if not is_normalized and settings.get("similarity_fn_name") not in (None, "cosine"):
        warnings.warn(
            f"{folder} compares vectors by {settings['similarity_fn_name']}; here, they have length 1 and "
            "are compared by their cosine",
            stacklevel=2,
        )
    return SentenceVectors(
        pooling,
        prompts.get("query", default),
        documents,
        transformer.get("max_seq_length"),
        is_normalized,
        {key: value for key, value in settings.items() if key != "__version__"},
    )


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Name the modules of a folder in their order, by the last part of their types, with their folders."""
    file = folder / MODULES
    try:
        modules = json.loads(file.read_bytes())
        return [(module["type"].rpartition(".")[2], module.get("path", "")) for module in modules]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{file} is damaged ({error}): copy it again, or remove it") from error


def known_pooling(
    folder: Path, modules: list[tuple[str, str]], remedy: str, *, has_prompts: bool
) -> ClassifierPooling:
    """Return our name of a folder's pooling."""
    names = [name for name, _ in modules]
    if names not in (list(PATHS)[:2], list(PATHS)):
        raise unlike(folder, " + ".join(names), remedy)
    told = read_facts(folder / modules[1][1] / "config.json")
    modes = told.get("pooling_mode") or [name for key, name in OLD_NAMES.items() if told.get(key)]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise unlike(folder, f"the pooling {' + '.join(map(str, modes)) or 'none'}", remedy)
    if has_prompts and told.get("include_prompt") is False:
        raise unlike(folder, "prompts that are not pooled (include_prompt)", remedy)
    return POOLINGS[modes[0]]


def unlike(folder: Path, what: str, remedy: str) -> UnlikeVectorsError:
    """Return the error of a folder whose vectors are made by what Tercet does not have."""
    return UnlikeVectorsError(
        f"{folder} makes its vectors by {what}; Tercet pools states ({', '.join(POOLINGS)}) and gives the "
        f"vector length 1: {remedy}"
    )


def sentence_files(vectors: SentenceVectors, width: int) -> dict[str, Any]:
    """Return the JSON files by which sentence-transformers makes the same vectors (C,): name -> contents."""
    paths = {name: path for name, path in PATHS.items() if name != "Normalize" or vectors.is_normalized}
    files: dict[str, Any] = {
        MODULES: [
            {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{name}"}
            for idx, (name, path) in enumerate(paths.items())
        ]
    }
    pooling = {key: POOLINGS.get(name) == vectors.pooling for key, name in OLD_NAMES.items()}
    files |= {f"{path}/config.json": {} for path in paths.values() if path}
    files[f"{PATHS['Pooling']}/config.json"] = {"word_embedding_dimension": width} | pooling
    prompts = {"query": vectors.query_prompt, "document": vectors.document_prompt}
    if vectors.settings or any(prompts.values()):
        files[SETTINGS] = vectors.settings or {"prompts": prompts, "default_prompt_name": None}
    if vectors.max_length is not None:
        files[TRANSFORMER] = {"max_seq_length": vectors.max_length}
    return files


def without_vectors(model: TercetPreTrainedModel) -> TercetPreTrainedModel:
    """Return the model below the head of sentence vectors, which has no weights; others stay the same."""
    return model.model if isinstance(model, TercetForSentenceEmbedding) else model


def vectors_of(model: TercetPreTrainedModel, folder: Path) -> SentenceVectors | None:
    """Return how a model of ours makes vectors: as its folder says, else as its head does, if it has one."""
    found = find_vectors(folder, f"remove {MODULES} to export the model alone")
    is_head = isinstance(model, TercetForSentenceEmbedding)
    return SentenceVectors(model.config.classifier_pooling) if found is None and is_head else found


def carried_files(vectors: SentenceVectors | None, folder: Path, width: int) -> dict[str, Any]:
    """Return the JSON files that go with a model from its folder: how it makes vectors, or scores pairs."""
    if vectors is not None:
        return sentence_files(vectors, width)
    names = [name for name in files_of_modules(folder) if "/" not in name]
    return {name: json.loads((folder / name).read_bytes()) for name in names}


def write_files(files: dict[str, Any], folder: Path) -> None:
    """Write JSON files into a folder that gets its name when it is complete."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def files_of_transformer(folder: Path) -> Iterator[Path]:
    """Find what a folder says of the length of texts, in the name that is read first where it has several."""
    yield from sorted(folder.glob(OF_TRANSFORMER), key=lambda file: (file.name != TRANSFORMER, file.name))


def files_of_modules(folder: Path) -> Iterator[str]:
    """Name the files of a folder that sentence-transformers reads beside the model's own."""
    if not (folder / MODULES).exists():
        return
    yield from (name for name in (MODULES, SETTINGS) if (folder / name).exists())
    yield from (file.name for file in files_of_transformer(folder))
    for _, path in read_modules(folder):
        files = sorted(files_below(folder / path)) if path else ()
        yield from (
            file.relative_to(folder).as_posix()
            for file in files
            if file.is_file() and is_of_module(file.name)
        )


def is_of_module(name: str) -> bool:
    """Return whether a module of sentence-transformers reads a file of this name."""
    return any(fnmatchcase(name, pattern) for pattern in OF_MODULES)
