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
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
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
EDITION = 2
"""To be raised whenever the same sources give another text."""

Document = tuple[str, list[str]]
"""A module's name and its paragraphs."""


def documentation_file(split: str, cache: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """Give the file that holds one split of the embedded corpus, after extracting it on first use.

    Args:
        split: `train` or `validation`.
        cache: Folder of the cache.
        packages: Names of import, or `standard library`.

    Returns:
        A `.txt` file: a paragraph a line, a blank line between modules.
    """
    assert split in SPLITS
    edition = repr((EDITION, sys.version, [(name, _version(name)) for name in packages]))
    folder = cache / f"documentation-{hashlib.sha256(edition.encode()).hexdigest()[:16]}"
    return made_once(folder, lambda target: _write(target, extract_documents(packages))) / f"{split}.txt"


def extract_documents(packages: Sequence[str] = PACKAGES) -> list[Document]:
    """Read the prose of every module, paragraphs that occurred before left out."""
    modules = [(module, file) for package in packages for module, file in sorted(_modules(package).items())]
    with ProcessPoolExecutor() as executor:
        extracted = executor.map(_paragraphs_of_module, [file for _, file in modules], chunksize=16)
        bar = tqdm(
            extracted, "reading documentation", total=len(modules), unit=" modules", disable=None, leave=False
        )
        return list(without_repetitions(zip((module for module, _ in modules), bar, strict=True)))


def without_repetitions(documents: Iterable[Document]) -> Iterator[Document]:
    """Leave out paragraphs that say what an earlier one said, whatever the names and numbers in it."""
    seen: set[str] = set()
    for module, paragraphs in documents:
        kept = []
        for paragraph in paragraphs:
            gist = " ".join(re.findall(r"(?<![\w.])[a-z]+(?![\w.(]\w)", paragraph))
            if gist not in seen:
                seen.add(gist)
                kept.append(paragraph)
        if sum(len(paragraph.split()) for paragraph in kept) >= FEWEST_WORDS:
            yield module, kept


def split_of(module: str) -> str:
    """Assign a module to training or validation by its name alone: the same on every machine."""
    number = int.from_bytes(hashlib.sha256(module.encode()).digest()[:8], "big")
    return "validation" if number % 100 < VALIDATION_PERCENT else "train"


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


def _paragraphs_of_module(file: Path) -> list[str]:
    try:
        source = file.read_text(encoding="utf-8")
        return [paragraph for text in docstrings(source) for paragraph in prose_paragraphs(text)]
    except (SyntaxError, ValueError):  # templates, and sources in other encodings
        return []


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
        texts = [
            "\n".join(paragraphs) + "\n" for module, paragraphs in documents if split_of(module) == split
        ]
        (folder / f"{split}.txt").write_text("\n".join(texts), encoding="utf-8")
