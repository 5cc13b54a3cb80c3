"""The embedded corpus: English that is already on every machine that has Tercet.

It consists of the documentation inside the Python standard library and the packages that Tercet depends on,
together about 1.8 million words. Sources are parsed, never imported. A module is a document, a paragraph a
line; a paragraph that occurs again, be it with other names in it, is kept once, so that nothing of the
validation modules has been seen in training.

Docstrings mix sentences with examples, tables of parameters, headings and markup (reStructuredText, Markdown,
the styles of NumPy and Google). What is not a sentence is dropped; what is one loses its markup. Rules are
rough on purpose: losing a paragraph costs nothing, learning a table as if it were English does.

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
from multiprocessing import get_context
from pathlib import Path

from tqdm import tqdm

from .cache import made_once
from .steps.workers import FORK

STANDARD_LIBRARY = "standard library"
PACKAGES = (
    STANDARD_LIBRARY, "torch", "transformers", "datasets", "tokenizers", "accelerate", "safetensors",
    "huggingface_hub", "evaluate", "numpy", "pandas", "pyarrow", "sympy", "networkx", "matplotlib", "PIL",
    "fontTools", "pydantic", "sacrebleu", "aiohttp", "anyio", "attr", "click", "dill", "filelock", "fsspec",
    "jinja2", "lxml", "multiprocess", "packaging", "psutil", "regex", "requests", "rich", "setuptools",
    "tqdm", "typer", "yaml",
)  # fmt: skip
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
        return [*([self.summary] if self.summary else []), *self.details]


Document = tuple[str, list[Docstring]]
"""A module's name and its docstrings."""


def documentation_file(split: str, cache: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """Return the file of one split of the embedded corpus, after extracting it on first use.

    It is a `.txt` file: a paragraph a line, a blank line between modules. `packages` are names of import, or
    `standard library`.
    """
    return _documentation_folder(cache, packages) / f"{split}.txt"


def read_documentation(split: str, cache: Path, packages: Sequence[str] = PACKAGES) -> list[Document]:
    """Read what `documentation_file` holds with its structure: which module, which docstring."""
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
    with ProcessPoolExecutor(mp_context=get_context(FORK)) as executor:
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
    # Found without importing anything.
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
        chosen = [document for document in documents if split_of(document[0]) == split]
        texts = [
            "\n".join(paragraph for docstring in docstrings for paragraph in docstring.paragraphs) + "\n"
            for _, docstrings in chosen
        ]
        (folder / f"{split}.txt").write_text("\n".join(texts), encoding="utf-8")
        rows = [{"module": module, "docstrings": [asdict(docstring) for docstring in docstrings]}
                for module, docstrings in chosen]  # fmt: skip
        lines = [f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")


FENCED = re.compile(r"^[ \t]*(```|~~~).*?(^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)
TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|\[\[[^\]\n]*\]\]")
DIRECTIVE = re.compile(r"\s*\.\. (?!(?:note|warning|tip|important|caution|hint|attention)::)")
ADMONITION = re.compile(r"\s*\.\. \w+::\s*")
RULE = re.compile(r"\s*([=\-~^\"'#*+`_.:])\1{2,}\s*$")
BULLET = re.compile(r"\s*(?:[-*+•]|\(?\d{1,2}[.)]|#+)\s+")
NAME = r"`{0,2}\*{0,2}[\w.]+`{0,2}"
FIELD = re.compile(
    r"\s*(?::\w+[^:]*:"  # :param name:
    rf"|{NAME}(?:\s*,\s*{NAME})*\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*(?::|--?)(?=\s|$)"  # name (type):
    r")\s*"
)
LABEL = re.compile(r"\s*[\w*.,`'\" ]+ : .*$")  # NumPy's style: name : type, the description below it
MARKUP = [
    (re.compile(r"!?\[`?([^\[\]`]*)`?\]\([^()]*\)"), r"\1"),  # Markdown links
    (re.compile(r"\[`~?(?:[\w.]+\.)?([\w()]+)`\]"), r"\1"),  # links of transformers
    (re.compile(r":[\w:]+:`([^`<]+?)\s*<[^`>]*>`"), r"\1"),  # roles with a text of their own
    (re.compile(r":math:`[^`]*`"), "\\\\"),  # formulas, for the filter to see
    (re.compile(r":[\w:]+:`[~!]?(?:[\w.]+\.)?([^`.]+\.?)`"), r"\1"),  # roles
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?"), r"\1"),  # links
    (re.compile(r"\s?\[[\w#*]+\]_"), ""),  # footnotes
    (re.compile(r"`{1,2}([^`]*)`{1,2}_{0,2}"), r"\1"),  # code and references
    (re.compile(r"\*{1,3}(?=\S)([^*]+?)(?<=\S)\*{1,3}"), r"\1"),  # bold and emphasis
    (re.compile(r"<?https?://\S+?>?(?=[.,;)]?(\s|$))"), ""),
    (re.compile(r"\s+"), " "),
    (re.compile(r" (?=[.,;:!?)])"), ""),
]
FOREIGN = re.compile(r"[{}|\\=\[\]@#$^~_]|>>>|->|%\(|::|--|\(\)|\w/\w|[^\x00-\x7f\u2013-\u2026\xc0-\xff]")
"""Signs that prose has few of."""
QUOTE = r"\"'\u2018-\u201d"
WORD = re.compile(rf"[({QUOTE}]*[A-Za-z]+(?:['\u2019-][A-Za-z]+)*[){QUOTE}]*[.,;:!?]*[){QUOTE}]*")
GLUE = frozenset({
    "the", "a", "an", "of", "to", "in", "is", "are", "be", "for", "and", "or", "that", "this", "it",
    "with", "as", "by", "on", "if", "not", "from", "when", "which", "can", "will", "at", "has", "have",
    "was", "were", "you", "we", "they", "its", "their", "such", "may", "must", "should", "would", "but",
    "than", "then", "so", "only", "into", "used", "no", "any", "all",
})  # fmt: skip
"""Words that hold sentences together: labels and listings do without."""
FEWEST_WORDS_OF_PROSE = 5
WORD_SHARE = 0.72
GLUE_SHARE = 0.2
WORDS_PER_FOREIGN_SIGN = 8


def prose_paragraphs(docstring: str) -> list[str]:
    r"""Return the paragraphs of prose in a docstring, each on one line, without markup.

    >>> prose_paragraphs("Sums.\n\nThe sum of ``x`` is\nnot *kept*.\n\n>>> sum(2)\n2\n\nx : int\n    Number.")
    ['The sum of x is not kept.']
    """
    text = TAG.sub("", FENCED.sub("", inspect.cleandoc(docstring)))
    paragraphs = (clean(" ".join(lines)) for block in _text_blocks(text) for lines in _paragraphs(block))
    return [paragraph for paragraph in paragraphs if is_prose(paragraph)]


def clean(paragraph: str) -> str:
    """Take the markup out of a paragraph and let it begin with a capital."""
    for pattern, replacement in MARKUP:
        paragraph = pattern.sub(replacement, paragraph)
    paragraph = paragraph.strip()
    return paragraph[:1].upper() + paragraph[1:]


def is_prose(paragraph: str) -> bool:
    """Judge whether a paragraph consists of English sentences: by its end, its signs and its words."""
    if not paragraph.endswith((".", "!", "?", '."', ".)")) or not paragraph[0].isalpha():
        return False
    if not paragraph.isprintable():  # docstrings show control characters as they are, NUL among them
        return False
    words = paragraph.split()
    if (
        len(words) < FEWEST_WORDS_OF_PROSE
        or len(FOREIGN.findall(paragraph)) > len(words) // WORDS_PER_FOREIGN_SIGN
    ):
        return False
    plain = sum(WORD.fullmatch(word) is not None for word in words)
    glue = sum(word.strip(",.;:()").lower() in GLUE for word in words)
    return plain >= WORD_SHARE * len(words) and glue >= GLUE_SHARE * len(words)


def _text_blocks(text: str) -> Iterator[list[str]]:
    # Blocks between blank lines, but those of a directive or an example.
    skipped_below: int | None = None  # blocks that are indented further are skipped
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").split("\n")
        indent = _indent(lines[0])
        if skipped_below is not None and indent > skipped_below:
            continue
        skipped_below = None
        if DIRECTIVE.match(lines[0]):
            skipped_below = indent
        elif lines[-1].rstrip().endswith("::") and not ADMONITION.match(lines[-1]):
            skipped_below = _indent(lines[-1])
        else:
            yield lines


def _paragraphs(block: list[str]) -> Iterator[list[str]]:
    # A list's next item begins a paragraph, and so does a margin that moves.
    paragraph: list[str] = []
    indent = 0
    for line, follower in zip(block, [*block[1:], ""], strict=True):
        if line.lstrip().startswith(">>>") or DIRECTIVE.match(line):
            break  # up to the next blank line, all is code and its output
        is_heading = RULE.match(line) or RULE.match(follower) or LABEL.match(line)
        opening = BULLET.match(line) or FIELD.match(line) or ADMONITION.match(line)
        if is_heading or opening or _indent(line) != indent:
            yield paragraph
            paragraph = []
        if not is_heading:
            paragraph.append((line[opening.end() :] if opening else line).strip())
        indent = _indent(follower) if opening else _indent(line)
    yield paragraph


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
