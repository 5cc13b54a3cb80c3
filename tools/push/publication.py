"""What goes to the Hub: of all that a run left, the files that someone needs who loads the model.

    config.json with `auto_map`, generation_config.json       *.safetensors, and their index
    the tokenizer's files                                     the code that the model needs
    README.md: the model card                                 recipe.yaml, certificate.json, plots
    modules.json and what it names, for sentence-transformers

Checkpoints, optimizer states, logs and caches stay, and paths that are absolute or go upward are shortened to
names. All is looked at before anything is sent: what is damaged or missing shows here.
"""

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from ...configs.documents import read_facts, texts_in, write_document
from ...configs.named_files import require_inside
from ...modeling.saved.checkpoint import Checkpoint
from ...modeling.saved.foreign_folder import OF_ANOTHER
from ...modeling.saved.model_folder import CERTIFICATE, CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG
from ...modeling.saved.remote_code import add_auto_map, code_of, saved_code
from ...modeling.saved.sentence_vectors import MODULES, OF_TRANSFORMER, SETTINGS, files_of_modules
from ...reports.finished_run import RECIPE, TASK, FinishedRun, find_run, without_folders
from .model_card import CARD, build_card, what_is_missing

TOKENIZER = (
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "source.spm",
    "target.spm",
    "target_vocab.json",
    "entity_vocab.json",
    "bpe.codes",
    "spm.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
)
"""What else tokenizers consist of, ours and the stock ones."""

KERNEL = "attn_implementation"
"""Key of a configuration that can name a kernel of the Hub, which transformers fetches without asking."""

MODEL_FILES = (
    *("model.safetensors", "model-?????-of-?????.safetensors", "model.safetensors.index.json"),
    *TOKENIZER,
    *(TOKENIZER_CONFIG, GENERATION_CONFIG, TASK, CERTIFICATE, RECIPE),
    *(MODULES, SETTINGS, OF_TRANSFORMER, "[0-9]_*/config.json"),
)
"""Names by which programs find out how a model is to be read."""


@dataclass(frozen=True)
class PublishedFile:
    """A file of the repository to be."""

    path: str
    """Its name there."""
    source: Path | bytes
    """The file here, or contents that no file here has."""

    @property
    def size(self) -> int:
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size

    @property
    def origin(self) -> str:
        """Say from which file it comes, with all links followed."""
        return "written anew" if isinstance(self.source, bytes) else f"from {self.source.resolve()}"


@dataclass(frozen=True)
class Publication:
    """All that is to be sent."""

    repo: str
    """The repository's id."""
    folder: Path
    """Where the model lies."""
    files: list[PublishedFile]
    missing: list[str]
    """What the card could say and does not, each with a remedy."""
    repo_type: Literal["model", "space"] = "model"
    """What the repository is for the Hub."""

    @property
    def address(self) -> str:
        """Name the repository as the Hub's addresses do."""
        return self.repo if self.repo_type == "model" else f"spaces/{self.repo}"


def prepare(folder: str | Path, repo: str, revision: str | None = None) -> Publication:
    """Gather what is to be sent, and make sure that it is whole; nothing is sent and nothing written.

    Args:
        folder: A run's folder, or that of a saved model.
        repo: Id of a repository, `owner/name`.
        revision: Branch that it goes to, of which the card tells; `main` if left out.

    Raises:
        ValueError: The name is no repository's, or there is no model, or one of its files is damaged, leads
            out of its folder or names code elsewhere, or its weights are not all there and finite.
    """
    require_repo_id(repo)
    run = find_run(Path(folder).expanduser())
    checkpoint = Checkpoint.open(str(run.model))
    weights = checkpoint.weights
    checkpoint.require_sound()
    config = add_auto_map(run.config, run.model)
    card = build_card(run, weights, repo, revision)
    files = [
        PublishedFile(CARD, str(card).encode()),
        published_facts(CONFIG, config),
        *(PublishedFile(path.name, path) for path in weights.files),
        *tokenizer_files(run.model),
        *code_files(run, config),
        *(PublishedFile(path.name, path) for path in run.plots),
    ]
    files += [PublishedFile(name, run.model / name) for name in files_of_modules(run.model)]
    told = [name for name in (GENERATION_CONFIG, TASK) if (run.model / name).exists()]
    files += [published_facts(name, read_facts(run.model / name)) for name in told]
    if run.recipe:
        files.append(PublishedFile(RECIPE, write_document(run.recipe).encode()))
    if run.certificate:
        files.append(published_facts(CERTIFICATE, run.certificate))
    for file in files:
        if isinstance(file.source, Path):
            require_inside(file.source, file.source.parent if file.source in run.plots else run.model)
    return Publication(repo, run.model, sorted(files, key=lambda file: file.path), what_is_missing(run, card))


def may_be_of_model(path: str) -> bool:
    """Return whether programs would read a model by a file of this name in its repository."""
    return any(
        path.count("/") == pattern.count("/") and fnmatchcase(path, pattern) for pattern in MODEL_FILES
    )


def require_repo_id(repo: str) -> None:
    """Raise a `ValueError` if nothing on the Hub can have this name, or if it does not say whose it is."""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"{repo!r} is not a repository id ({error}): write owner/name") from error
    if "/" not in repo:
        raise ValueError(f"{repo!r} has no owner: write owner/name, as in me/{repo}")


def tokenizer_files(folder: Path) -> list[PublishedFile]:
    """List the tokenizer's files."""
    found = [file for pattern in TOKENIZER for file in sorted(folder.glob(pattern))]
    files = [PublishedFile(str(file.relative_to(folder)), file) for file in found]
    for file in files:
        if file.path.endswith(".json"):
            read_facts(folder / file.path)
    if (folder / TOKENIZER_CONFIG).exists():
        files.append(published_facts(TOKENIZER_CONFIG, read_facts(folder / TOKENIZER_CONFIG)))
    return files


def code_files(run: FinishedRun, config: dict[str, Any]) -> list[PublishedFile]:
    """List the code that the model needs: what was saved with it, else this installation's."""
    if config is run.config:
        return [PublishedFile(path.name, path) for path in saved_code(config, run.model)]
    return [PublishedFile(name, text.encode()) for name, text in code_of(config).items()]


def published_facts(name: str, facts: dict[str, Any]) -> PublishedFile:
    """Write facts as transformers writes them, without the places from which something was loaded."""
    told = [*texts_in(facts), *((KERNEL, text) for _, text in texts_in(facts.get(KERNEL)))]
    if elsewhere := [
        text for key, text in told if OF_ANOTHER.fullmatch(text) or (key == KERNEL and "/" in text)
    ]:
        raise ValueError(
            f"{name} names code in another repository ({elsewhere[0]}), which whoever loads the model would "
            "run: remove that entry, or copy the code into the folder"
        )
    origins = {key for key in facts if key.endswith(("name_or_path", "_file"))}
    cleaned = facts | without_folders({key: facts[key] for key in origins})
    return PublishedFile(name, (json.dumps(cleaned, indent=2) + "\n").encode())


def describe(publication: Publication, revision: str | None = None) -> str:
    """Describe which files would be sent and where, and what the card lacks."""
    width = max(len(file.path) for file in publication.files)
    lines = [f"{publication.folder} -> {publication.address} ({revision or 'main'})"]
    lines += [f"  {file.path:<{width}} {file.size:>14,} bytes  {file.origin}" for file in publication.files]
    total = sum(file.size for file in publication.files)
    lines.append(f"{len(publication.files)} files, {total:,} bytes; nothing was uploaded")
    if publication.repo_type == "model":
        lacking = [f"the card lacks {missing}" for missing in publication.missing]
        lines += lacking or ["the card lacks nothing"]
    return "\n".join(lines)
