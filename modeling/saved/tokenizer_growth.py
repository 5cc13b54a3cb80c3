"""How much longer a `tokenizer.json` may make a text, before anything is read by it.

    normalizer, decoder     Replace: a content of many characters for each match, one step after another
    post_processor          TemplateProcessing: the text several times, and tokens of its own

Ten steps that write a hundred characters for one make a letter fill any memory. Steps of tokenizers in use
write one for one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_TIMES = 2**12
"""How many times as long a text may become."""

MOST_ADDED = 2**12
"""Characters or tokens that may be added to each text."""

PARTS = ("normalizer", "decoder", "post_processor")
"""Parts of the file that change the length of a text."""


def require_bounded(facts: Any, file: Path) -> None:
    """Refuse a tokenizer that may make a text far longer.

    Args:
        facts: What the file says; of a damaged one its reader tells.
        file: A `tokenizer.json`.

    Raises:
        ValueError: It may.
    """
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
