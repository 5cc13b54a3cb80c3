"""The command `tercet convert`: a model's folder is read as another member and written to a new one.

A table, JSON and a page beside the model say what became of it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ...configs.messages import quietly
from ...modeling import TercetDecoderForCausalLM, TercetDecoderForMaskedLM, TercetPreTrainedModel
from ...modeling.saved.checkpoint import Checkpoint
from ...modeling.saved.model_folder import CONVERSION, num_ids, pads, require_fit
from ...modeling.stock.models import as_ours
from ...modeling.stock.probes import TEXTS
from ...reports.finished_run import without_folders
from ..import_export.run import claimed, write_model
from .members import Member, Reading, member_of, read_as
from .prediction_change import (
    Change,
    Probe,
    Question,
    change_of_predictions,
    change_of_states,
    probe_of,
    states_of,
)
from .tokenizer_roles import prepare_tokenizer

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
        sources: Names of the model, and of the decoder if there is one; of absolute paths, the last part.
        source_member: What the model was.
        reading: The model, and what was kept, new and dropped.
        tokenizer: Tokenizer of the model.
        changes: By how much predictions changed.
    """

    sources: tuple[str, ...]
    source_member: Member
    reading: Reading
    tokenizer: PreTrainedTokenizerBase
    changes: tuple[Change, ...]

    def table(self) -> str:
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
        facts = {
            "sources": self.sources,
            "model": type(self.reading.model).__name__,
            "kept": self.reading.kept,
            "new": self.reading.new,
            "dropped": self.reading.dropped,
            "changes": [asdict(change) for change in self.changes],
        }
        (folder / CONVERSION).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
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


MOST_TEXTS = 8
"""Of a text file, by which predictions are compared."""


def convert_model(
    source: str,
    to: Member,
    output: str,
    *,
    decoder: str | None = None,
    text: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> MemberReport:
    """Write the other member that a model is read as, its tokenizer, and a page about both.

    Args:
        source: A folder or a repository on the Hub, of Tercet's or a stock model.
        to: The member.
        decoder: For `seq2seq`, the model that becomes the decoder.
        text: A text file, on whose first paragraphs predictions are compared; `None`: on six sentences.
        seed: Seed of the weights that no source has.
        overwrite: Replace what an earlier call has written there.
    """
    sources = {"the model": source} | ({} if decoder is None else {"the decoder": decoder})
    texts = TEXTS if text is None else paragraphs(text)
    with claimed(sources, output, overwrite=overwrite) as folder:
        first, tokenizer = load(source)
        second, other = (None, None) if decoder is None else load(decoder)
        if other is not None and other.get_vocab() != tokenizer.get_vocab():  # one folder has one tokenizer
            raise ValueError(
                f"the tokenizers of encoder ({len(tokenizer.get_vocab()):,} tokens) and decoder "
                f"({len(other.get_vocab()):,}) have different vocabularies: choose two models with one "
                "tokenizer"
            )
        reading = read_as(first, to, second, seed=seed)
        report = MemberReport(
            sources=tuple(without_folders([*sources.values()])),
            source_member=member_of(first),
            reading=settle(reading, tokenizer, to),
            tokenizer=tokenizer,
            changes=tuple(changes(first, second or first, reading.model, tokenizer, texts)),
        )
        write_model(report.reading.model, tokenizer, folder, report.save)
    return report


def load(source: str) -> tuple[TercetPreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model and its tokenizer."""
    checkpoint = Checkpoint.open(source)
    with quietly():
        model = as_ours(checkpoint)
    if isinstance(model, TercetDecoderForMaskedLM):  # the same weights as those of the model that generates
        causal: Any = TercetDecoderForCausalLM(model.config)
        causal.load_state_dict(model.state_dict())
        model = causal.to(model.dtype).eval()
    tokenizer = checkpoint.required_tokenizer()
    require_fit(tokenizer, model.config)
    pads(tokenizer, source)
    return model, tokenizer


def paragraphs(text: str) -> list[str]:
    """Read the first paragraphs of a text file."""
    file = Path(text).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"--text {text} is no file: name a text file")
    try:
        parts = [" ".join(part.split()) for part in file.read_text(encoding="utf-8").split("\n\n")]
    except UnicodeDecodeError as error:
        raise ValueError(f"--text {text} is not UTF-8 ({error}): convert it first") from error
    found = [part for part in parts if part][:MOST_TEXTS]
    if not found:
        raise ValueError(f"--text {text} has no text: name another file")
    return found


def settle(reading: Reading, tokenizer: PreTrainedTokenizerBase, to: Member) -> Reading:
    """Set the special tokens that the member works with, with the same ids in model and tokenizer."""
    prepare_tokenizer(tokenizer, to, has_segments=bool(reading.model.config.type_vocab_size))
    reading = with_room(reading, num_ids(tokenizer))
    model = reading.model
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("pad", "bos", "eos")}
    if to == "seq2seq":
        start = ids["pad_token_id"] if ids["bos_token_id"] is None else ids["bos_token_id"]
        ids["decoder_start_token_id"] = start
    for config in (model.config, *([model.generation_config] if model.can_generate() else [])):
        for name, value in ids.items():
            given = getattr(config, name, None)
            is_one_of_several = isinstance(given, list) and value in given  # tokens that end a text
            if value is not None and not is_one_of_several:
                setattr(config, name, value)
    return reading


@torch.no_grad()
def with_room(reading: Reading, size: int) -> Reading:
    """Add vectors for new tokens: the mean of all others, which surprises no layer."""
    model, before = reading.model, reading.model.config.vocab_size
    if size <= before:
        return reading
    model.resize_token_embeddings(size, mean_resizing=False)
    new = dict(reading.new)
    for name, parameter in model.named_parameters():
        if parameter.shape[:1] == (size,) and name in reading.kept:
            parameter[before:] = parameter[:before].mean(dim=0)
            new[f"{name}[{before}:], mean of the others"] = parameter[before:].numel()
    return replace(reading, new=new)


def changes(
    first: TercetPreTrainedModel,
    second: TercetPreTrainedModel,
    after: TercetPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str] | tuple[str, ...],
) -> Iterator[Change]:
    """Compare the sources of a model with it, by what they have in common: predictions, and states."""
    models = (first, second, after)
    probe = probe_of(texts, tokenizer, min(model.config.max_position_embeddings for model in models))
    if member_of(after) == "seq2seq":
        yield from changes_of_pair(first, second, after, probe)
        return
    yield from predictions(first, after, probe)
    stack = member_of(after)
    yield change_of_states(
        list(states_of(first, probe, stack)), list(states_of(after, probe)), "hidden states"
    )


def changes_of_pair(
    encoder: TercetPreTrainedModel, decoder: TercetPreTrainedModel, after: TercetPreTrainedModel, probe: Probe
) -> Iterator[Change]:
    """Compare each stack with its source, and the decoder's predictions."""
    yield from predictions(decoder, after, probe)
    for stack, source in (("encoder", encoder), ("decoder", decoder)):
        before, now = list(states_of(source, probe, stack)), list(states_of(after, probe, stack))
        yield change_of_states(before, now, f"hidden states of the {stack}")


def predictions(
    before: TercetPreTrainedModel, after: TercetPreTrainedModel, probe: Probe
) -> Iterator[Change]:
    """Put the question that a model has learned to answer to it and to what it became, if it has a head."""
    member = member_of(before)
    if member == "seq2seq" or not hasattr(before, "compute_logits"):
        return
    question: Question = "next token" if member == "decoder" else "masked token"
    if question == "masked token" and probe.mask_id is None:
        return
    yield change_of_predictions(before, after, question, probe)
