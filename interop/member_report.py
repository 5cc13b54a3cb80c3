"""What became of a model that is read as another member: a table, JSON, and a page beside the model."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from .members import Member, Reading, member_of
from .prediction_change import Change

FACTS = "conversion.json"
CARD = "README.md"
LAYER = re.compile(r"\blayers\.\d+\.")

NEXT_STEP = {
    ("decoder", "encoder"): "Its head predicts the token after a position, as a decoder's does: go on with "
    "masked next-token prediction (BehnamGhader et al., 2024, section 2.2), or fine-tune on a task.",
    (
        "encoder",
        "decoder",
    ): "Its head predicts the token at a position, as an encoder's does: go on with causal "
    "language modeling (model.path in a recipe) before it writes texts.",
    ("seq2seq", "encoder"): "The encoder computes what it did.",
    ("seq2seq", "decoder"): "The decoder has no source any more: go on with causal language modeling "
    "(model.path in a recipe).",
}
"""What a model needs after its conversion, by the member that it was and the one that it is."""

PAIR = (
    "Cross-attention is untrained: go on with pairs of texts, span corruption or denoising "
    "(Rothe et al., 2020, section 3)."
)
"""The same for a sequence-to-sequence model."""

PIPELINES = {"encoder": "fill-mask", "decoder": "text-generation", "seq2seq": "text2text-generation"}
LOADERS = {
    "encoder": "AutoModelForMaskedLM",
    "decoder": "AutoModelForCausalLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
}


@dataclass(frozen=True)
class MemberReport:
    """A conversion and what was measured.

    Args:
        sources: Names of the model, and of the decoder if there is one.
        source_member: What the model was.
        reading: The model, and what was kept, new and dropped.
        tokenizer: Of the model.
        changes: By how much predictions changed.
    """

    sources: tuple[str, ...]
    source_member: Member
    reading: Reading
    tokenizer: PreTrainedTokenizerBase
    changes: tuple[Change, ...]

    def table(self) -> str:
        """Show everything as Markdown."""
        model, reading = self.reading.model, self.reading
        return "\n".join(
            [
                f"{' and '.join(self.sources)} -> {type(model).__name__}, "
                f"{model.num_parameters():,} parameters",
                "",
                "| | parameters | tensors |",
                "|---|--:|---|",
                f"| kept, bit for bit | {sum(reading.kept.values()):,} | {len(reading.kept)} |",
                *rows("new", reading.new),
                *rows("dropped", reading.dropped),
                "",
                "| predictions | tokens | before | after | change |",
                "|---|--:|--:|--:|---|",
                *(change_row(change) for change in self.changes),
                "",
                NEXT_STEP.get((self.source_member, member_of(model)), PAIR),
            ]
        )

    def card(self) -> str:
        """Write the page beside the model, which is its model card on the Hub."""
        member, model = member_of(self.reading.model), self.reading.model
        return "\n".join(
            [
                "---",
                "library_name: transformers",
                f"pipeline_tag: {PIPELINES[member]}",
                f"tags: [tercet, {model.config.model_type}, custom_code]",
                "---",
                "",
                f"# {' and '.join(self.sources)}, read as {'an' if member == 'encoder' else 'a'} {member}",
                "",
                "Made by `tercet convert`; not trained since.",
                "",
                self.table(),
                "",
                "```python",
                "import tercet",
                f"from transformers import {LOADERS[member]}, AutoTokenizer",
                "",
                f'model = {LOADERS[member]}.from_pretrained("FOLDER")',
                'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
                "```",
                "",
            ]
        )

    def save(self, folder: Path) -> None:
        """Write `README.md` and `conversion.json`."""
        facts = {
            "sources": self.sources,
            "model": type(self.reading.model).__name__,
            "kept": self.reading.kept,
            "new": self.reading.new,
            "dropped": self.reading.dropped,
            "changes": [asdict(change) for change in self.changes],
        }
        (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        (folder / CARD).write_text(self.card(), encoding="utf-8")


def rows(what: str, sizes: Mapping[str, int]) -> Iterator[str]:
    """List tensors, those of all layers together."""
    if not sizes:
        yield f"| {what} | 0 | |"
    names = sorted((LAYER.sub("layers.*.", name), size) for name, size in sizes.items())
    for name, group in groupby(names, key=lambda each: each[0]):
        counts = [size for _, size in group]
        many = f" ({len(counts)} layers)" if len(counts) > 1 else ""
        yield f"| {what} | {sum(counts):,} | `{name}`{many} |"


def change_row(change: Change) -> str:
    """Write a row about one comparison."""
    if change.distance is not None:
        return f"| {change.what} | {change.size:,} | | | {change.distance:.1%} of their length |"
    return (
        f"| perplexity of the {change.what} | {change.size:,} | {change.before:,.1f} | {change.after:,.1f} | "
        f"same likeliest token: {change.agreement:.1%} |"
    )
