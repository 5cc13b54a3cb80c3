"""A model's folder that somebody else made, checked before anything is read by it.

No file in it leads out of it, none names a file elsewhere, and no tokenizer makes a text far longer.

transformers hands every key of `tokenizer_config.json` and `special_tokens_map.json` to the tokenizer's
class, which opens the files that some of them name (`vocab`, `merges`, `*_file`), wherever they lie. What it
reads there becomes tokens, which are saved with the model. A name in `auto_map` becomes the path of a module.

What makes a text longer is told by `tokenizer.json`:

    normalizer, decoder     Replace: a content of many characters for each match, one step after another
    post_processor          TemplateProcessing: the text several times, and tokens of its own

Ten steps that write a hundred characters for one make a letter fill any memory. Steps of tokenizers in use
write one for one.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...configs.documents import texts_in
from ...configs.named_files import files_below, is_inside, named_file, require_inside, require_plain

OF_TOKENIZERS = ("tokenizer_config.json", "special_tokens_map.json")
"""Files whose keys become arguments of a tokenizer's class."""

WITH_CODE = ("config.json", "tokenizer_config.json")
"""Files whose `auto_map` names code."""

NAMES_FILES = re.compile(r"(vocab|merges|init_inputs|.*_(vocab|spm|files?|path|dir))")
"""Keys under which a tokenizer's class takes a text for a file."""

NEVER_OPENED = {"name_or_path", "special_tokens_map_file", "tokenizer_file"}
"""Keys of `tokenizer_config.json` that transformers writes or wrote, and takes from no such file."""

BESIDE = re.compile(r"([\w-]+)\.\w+")
"""How `auto_map` names a class whose module lies in the same folder."""

OF_ANOTHER = re.compile(rf"[\w.-]+/[\w.-]+--{BESIDE.pattern}")
"""How it names one whose module lies in another repository on the Hub."""

TOKENIZER = "tokenizer.json"

MODULES = "modules.json"
"""Names the folders of sentence-transformers' modules."""

TEMPLATES = "additional_chat_templates"
"""A folder of files that transformers reads with the tokenizer."""

MOST_TIMES = 2**12
"""How many times as long a text may become."""

MOST_ADDED = 2**12
"""Characters or tokens that may be added to each text."""

PARTS = ("normalizer", "decoder", "post_processor")
"""Parts of the file that change the length of a text."""


def require_own_files(folder: Path) -> None:
    """Refuse a model's folder whose files lead out of it, or name what lies elsewhere."""
    entries = sorted(folder.iterdir())
    require_plain(*entries)
    for file in (*filter(Path.is_file, entries), folder / TEMPLATES, *files_below(folder / TEMPLATES)):
        require_inside(file, folder)
    for name in OF_TOKENIZERS:
        require_own_names(folder / name)
    require_bounded(read_json(folder / TOKENIZER), folder / TOKENIZER)
    for name in WITH_CODE:
        require_references(folder / name)
    for key, value in texts_in(read_json(folder / MODULES)):
        if key == "path" and value:  # the Transformer's is empty
            named_file(folder, value, folder / MODULES)


def require_own_names(file: Path) -> None:
    """Raise a `ValueError` if a file of a tokenizer names an existing file elsewhere; others open nothing."""
    spared = NEVER_OPENED if file.name == OF_TOKENIZERS[0] else ()
    for key, value in texts_in(read_json(file)):
        is_path = value.startswith("/") or ".." in Path(value).parts
        if key in spared or not (is_path or NAMES_FILES.fullmatch(key)):
            continue
        for path in (Path(value), file.parent / value):
            if exists(path) and not is_inside(path, file.parent):
                raise ValueError(
                    f"{file} says {key} = {value!r}, which is a file outside of its folder and is not read: "
                    "remove the key, or put a copy of the file into the folder"
                )


def require_references(file: Path) -> None:
    """Raise a `ValueError` if an `auto_map` names code otherwise than by module and class."""
    facts = read_json(file)
    for _, value in texts_in(facts.get("auto_map") if isinstance(facts, dict) else None):
        if not (BESIDE.fullmatch(value) or OF_ANOTHER.fullmatch(value)):
            raise ValueError(
                f"auto_map of {file} names {value!r}, but code is named by a file beside it and a class "
                "(modeling.Model): correct it, or remove auto_map"
            )


def require_bounded(facts: Any, file: Path) -> None:
    """Refuse a tokenizer that may make a text far longer; of a damaged file its reader tells."""
    for part in PARTS if isinstance(facts, dict) else ():
        times, added = 1.0, 0
        for step in steps_of(facts.get(part)):
            own_times, own_added = growth(step)
            times, added = times * own_times, added + own_added
        if times > MOST_TIMES or added > MOST_ADDED:
            raise ValueError(
                f"the {part} of {file} may make a text {times:,.0f} times as long and add {added:,} to it, "
                "far more than tokenizers do: copy the file again from where it comes, or do not use it"
            )


def steps_of(part: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a part, of a sequence of steps each."""
    stack = [part]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield part
            stack += (each for value in part.values() if isinstance(value, list) for each in value)


def growth(step: dict[str, Any]) -> tuple[float, int]:
    """Return how many times as long a step may make a text, and how much it adds to it."""
    if step.get("type") == "Replace":
        pattern, content = step.get("pattern"), len(str(step.get("content", "")))
        replaced = len(str(pattern.get("String", ""))) if isinstance(pattern, dict) else 0
        return (max(1.0, content / replaced), 0) if replaced else (1 + content, 0)  # matches of nothing, too
    if step.get("type") == "TemplateProcessing":
        forms = [form for name in ("single", "pair") if isinstance(form := step.get(name), list)]
        texts = max((sum("Sequence" in each for each in form) for form in forms), default=1)
        return texts, max((tokens_in(form, step.get("special_tokens")) for form in forms), default=0)
    return 1, len(str(step.get("prepend", "")))


def tokens_in(form: list[Any], tokens: Any) -> int:
    """Count the tokens that a template adds."""
    names = [each["SpecialToken"].get("id") for each in form if isinstance(each.get("SpecialToken"), dict)]
    known = tokens if isinstance(tokens, dict) else {}
    return sum(len(known[name].get("ids", ())) for name in names if isinstance(known.get(name), dict))


def exists(path: Path) -> bool:
    """Return whether a path names a file that is there; texts that can be no path name none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_json(file: Path) -> Any:
    """Read a JSON file; nothing if it is not there, or damaged, which its reader tells of."""
    try:
        return json.loads(file.read_bytes()) if file.is_file() else None
    except (ValueError, RecursionError):
        return None
