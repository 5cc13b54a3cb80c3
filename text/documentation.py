"""The embedded corpus: English that is already on every machine that has Tercet.

It consists of the documentation inside the Python standard library and the packages that Tercet depends on,
together about 1.8 million words. Sources are parsed, never imported. A module is a document, a paragraph a
line; a paragraph that occurs again, be it with other names in it, is kept once, so that nothing of the
validation modules has been seen in training.

The text depends on the installed versions: it serves demonstrations and tests, not comparisons between
machines.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from .cache import made_once
from .prose import prose_paragraphs

STANDARD_LIBRARY = "standard library"
PACKAGES = (
    STANDARD_LIBRARY,
    *(
        "torch",
        "transformers",
        "datasets",
        "tokenizers",
        "accelerate",
        "safetensors",
        "huggingface_hub",
        "evaluate",
    ),
    *(
        "numpy",
        "pandas",
        "pyarrow",
        "sympy",
        "networkx",
        "matplotlib",
        "PIL",
        "fontTools",
        "pydantic",
        "sacrebleu",
    ),
    *(
        "aiohttp",
        "anyio",
        "attr",
        "click",
        "dill",
        "filelock",
        "fsspec",
        "jinja2",
        "lxml",
        "multiprocess",
        "packaging",
    ),
    *("psutil", "regex", "requests", "rich", "setuptools", "tqdm", "typer", "yaml"),
)
"""What is read, by the names of import; what is not installed is passed over."""

SKIPPED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "testing", "lib2to3", "idlelib", "_vendor"}
)
SPLITS = ("train", "validation")
VALIDATION_PERCENT = 5
FEWEST_WORDS = 25
EDITION = 3
"""To be raised whenever the same sources give another text, or it is kept in another way."""


@dataclass(frozen=True)
class Docstring:
    """The prose of one docstring."""

    summary: str | None
    """Its first paragraph, where that is a paragraph of prose; a docstring begins by saying in one line what
    it is about (PEP 257)."""
    details: list[str]
    """The other paragraphs."""

    @property
    def paragraphs(self) -> list[str]:
        """All of them in their order."""
        return [*([self.summary] if self.summary else []), *self.details]


Document = tuple[str, list[Docstring]]
"""A module's name and its docstrings."""


def documentation_file(split: str, cache: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """Give the file that holds one split of the embedded corpus, after extracting it on first use.

    Args:
        split: `train` or `validation`.
        cache: Folder of the cache.
        packages: Names of import, or `standard library`.

    Returns:
        A `.txt` file: a paragraph a line, a blank line between modules.
    """
    return _documentation_folder(cache, packages) / f"{split}.txt"


def read_documentation(split: str, cache: Path, packages: Sequence[str] = PACKAGES) -> list[Document]:
    """Read what `documentation_file` holds with its structure: which module, which docstring.

    Args:
        split: As there.
        cache: As there.
        packages: As there.
    """
    file = _documentation_folder(cache, packages) / f"{split}.jsonl"
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [(row["module"], [Docstring(**each) for each in row["docstrings"]]) for row in rows]


def _documentation_folder(cache: Path, packages: Sequence[str]) -> Path:
    edition = repr((EDITION, sys.version, [(name, _version(name)) for name in packages]))
    folder = cache / f"documentation-{hashlib.sha256(edition.encode()).hexdigest()[:16]}"
    return made_once(folder, lambda target: _write(target, extract_documents(packages)))


def extract_documents(packages: Sequence[str] = PACKAGES) -> list[Document]:
    """Read the prose of every module, paragraphs that occurred before left out."""
    modules = [(module, file) for package in packages for module, file in sorted(_modules(package).items())]
    with ProcessPoolExecutor() as executor:
        extracted = executor.map(_docstrings_of_module, [file for _, file in modules], chunksize=16)
        bar = tqdm(
            extracted, "reading documentation", total=len(modules), unit=" modules", disable=None, leave=False
        )
        return list(without_repetitions(zip((module for module, _ in modules), bar, strict=True)))


def without_repetitions(documents: Iterable[Document]) -> Iterator[Document]:
    """Leave out paragraphs that say what an earlier one said, whatever the names and numbers in it."""
    seen: set[str] = set()

    def is_new(paragraph: str) -> bool:
        gist = " ".join(re.findall(r"(?<![\w.])[a-z]+(?![\w.(]\w)", paragraph))
        is_unseen = gist not in seen
        seen.add(gist)
        return is_unseen

    for module, docstrings in documents:
        kept = [
            Docstring(
                each.summary if each.summary and is_new(each.summary) else None,
                [paragraph for paragraph in each.details if is_new(paragraph)],
            )
            for each in docstrings
        ]
        if sum(len(paragraph.split()) for each in kept for paragraph in each.paragraphs) >= FEWEST_WORDS:
            yield module, [each for each in kept if each.paragraphs]


def split_of(module: str) -> str:
    """Assign a module to training or validation by its name alone: the same on every machine."""
    number = int.from_bytes(hashlib.sha256(module.encode()).digest()[:8], "big")
    return "validation" if number % 100 < VALIDATION_PERCENT else "train"


def package_of(module: str) -> str:
    """Name the package of a module, as in `PACKAGES`."""
    name = module.partition(".")[0]
    return name if name in PACKAGES else STANDARD_LIBRARY


def docstrings(source: str) -> list[str]:
    """Find the docstrings of a module's source, in their order.

    Documentation of compiled functions is kept in long strings that are passed to a function: those count,
    too.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escape sequences
        tree = ast.parse(source)
    found = {}
    for node in ast.walk(tree):
        constant = node.value if isinstance(node, ast.Expr) else node
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
            text = constant.value
            if constant is not node or text.count("\n") >= 3:
                found[constant.lineno, constant.col_offset] = text
    return [text for _, text in sorted(found.items())]


def _docstrings_of_module(file: Path) -> list[Docstring]:
    try:
        return [_docstring(text) for text in docstrings(file.read_text(encoding="utf-8"))]
    except (SyntaxError, ValueError):  # templates, and sources in other encodings
        return []


def _docstring(text: str) -> Docstring:
    paragraphs = prose_paragraphs(text)
    opening = prose_paragraphs(inspect.cleandoc(text).partition("\n\n")[0])
    if len(opening) == 1 and opening == paragraphs[:1]:
        return Docstring(paragraphs[0], paragraphs[1:])
    return Docstring(None, paragraphs)


def _modules(package: str) -> dict[str, Path]:
    """Find the source files of a package by the names of their modules, without importing it."""
    if package == STANDARD_LIBRARY:
        root, prefix = Path(sysconfig.get_paths()["stdlib"]), ()
    else:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            return {}
        root, prefix = Path(next(iter(spec.submodule_search_locations))), (package,)
    modules = {}
    for file in root.rglob("*.py"):
        parts = file.relative_to(root).with_suffix("").parts
        if not SKIPPED_FOLDERS.intersection(parts):
            names = parts[:-1] if parts[-1] == "__init__" else parts
            modules[".".join((*prefix, *names))] = file
    return modules


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _write(folder: Path, documents: list[Document]) -> None:
    for split in SPLITS:
        own = [document for document in documents if split_of(document[0]) == split]
        texts = [
            "\n".join(paragraph for each in docstrings for paragraph in each.paragraphs) + "\n"
            for _, docstrings in own
        ]
        (folder / f"{split}.txt").write_text("\n".join(texts), encoding="utf-8")
        rows = [{"module": module, "docstrings": [asdict(each) for each in docstrings]}
                for module, docstrings in own]  # fmt: skip
        lines = [f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
