"""What a finished model does with held-out text, for people to read: the same texts in every run, none chosen
by success.

    decoder               reads the beginning of a text, and goes on greedily
    encoder               reads a text in which a word is masked, and ranks the tokens of its vocabulary
    sequence to sequence  reads a source, corrupted as in evaluation or to be translated, and writes greedily

Other members (characters, ELMo) have no samples.

Shapes: T tokens, V size of the vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...data.steps.batches import StepDataset
from ...data.steps.examples import Examples as HeldOutExamples
from ...data.steps.objective import INDEX, Objective
from ...data.tokenizers.special_tokens import is_special
from ...modeling import TercetDecoderConfig, TercetEncoderConfig, TercetSeq2SeqConfig
from ...modeling.generation.writing import write
from ...pretraining.objectives.teacher_forcing import TeacherForcing
from ...training.evaluation import undisturbed_randomness
from ...training.mixture import MixedExamples, MixedObjective
from ..blocks import Block, Entry, Example, Examples, Heading, Line, Prose, Ranking, Run

NUM_SAMPLES = 4
MOST_LOOKED_AT = 100
"""Held-out examples among which suitable ones are sought."""

PROMPT, WRITTEN = 16, 32
"""Tokens that a decoder reads, and that it or a sequence-to-sequence model's decoder writes at most."""

LEAST_TRUTH = 8
"""Tokens that a held-out text goes on with behind a prompt, at least."""

NUM_GUESSES = 3
LEAST_WORD = 4
"""Letters of a word that is worth masking: shorter ones are mostly grammar."""

SHOWN = 20
"""Tokens on each side of a gap that are shown; the model reads all."""


@dataclass(frozen=True)
class Samples:
    """What a model does with some texts."""

    examples: Sequence[Example] = ()
    rule: str = ""
    """What the model was asked to do."""

    @property
    def blocks(self) -> list[Block]:
        """Return them as a chapter of a report; nothing if there are none."""
        if not self.examples:
            return []
        about = Prose(f"Held-out texts, evenly spaced and not chosen by success. {self.rule}")
        return [Heading("Samples"), about, Examples(self.examples)]


def as_lines(example: Example) -> dict[str, str]:
    """Return the lines of a sample as plain data, by their labels, and what the model ranked highest."""
    lines = {line.label: "".join(run.text for run in line.runs) for line in example.lines}
    guesses = ", ".join(f"{bar.name} {bar.shown}" for bar in example.bars)
    return lines | ({"guesses": guesses} if guesses else {})


def samples(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, held_out: StepDataset | None
) -> Samples:
    """Let a model answer held-out texts; there are no samples if it has no such ability.

    Args:
        held_out: The held-out examples, with the objective that they are measured by.
    """
    if held_out is None:
        return Samples()
    objective, examples = first_part(held_out.objective, held_out.plan(0)[0])
    config = model.config
    with undisturbed_randomness(model.device), torch.inference_mode():
        if isinstance(config, TercetDecoderConfig) and model.can_generate():
            return Samples(continuations(model, tokenizer, examples), CONTINUED)
        fills = isinstance(config, TercetEncoderConfig | TercetDecoderConfig)
        if fills and tokenizer.mask_token_id is not None:
            return Samples(filled_gaps(model, tokenizer, examples), FILLED)
        if isinstance(config, TercetSeq2SeqConfig) and isinstance(objective, TeacherForcing):
            return Samples(rewritten(model, tokenizer, objective, examples, held_out.seed), REWRITTEN)
    return Samples()


CONTINUED = (
    f"The model reads a prompt of {PROMPT} tokens and goes on greedily: it always takes the likeliest token."
)
FILLED = "The model reads the whole text without the word in brackets; the likeliest tokens follow."
REWRITTEN = "The model reads the source and writes greedily: it always takes the likeliest token."


def first_part(objective: Objective, examples: HeldOutExamples) -> tuple[Objective, HeldOutExamples]:
    """Return the first objective of a mixture with its examples; any other one as it is."""
    if isinstance(objective, MixedObjective) and isinstance(examples, MixedExamples):
        return objective.objectives[0], examples.parts[0]
    return objective, examples


def evenly_spaced(examples: HeldOutExamples, fewest_tokens: int = 1) -> Iterator[Any]:
    """Yield examples that have at least so many tokens and stand evenly spaced, at most `MOST_LOOKED_AT`."""
    suited = np.flatnonzero(np.asarray(examples.lengths) >= fewest_tokens)
    count = min(MOST_LOOKED_AT, len(suited))
    stride = max(count // NUM_SAMPLES, 1)
    # The middles of NUM_SAMPLES stretches come first; the others stand in for those that are not suited.
    for place in sorted(range(count), key=lambda each: (each % stride != stride // 2, each)):
        number = int(suited[(2 * place + 1) * len(suited) // (2 * count)])
        yield {INDEX: number} | examples[number]


def continuations(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, examples: HeldOutExamples
) -> list[Example]:
    """Let a decoder go on from the beginnings of texts."""
    special = is_special(tokenizer)
    found = []
    for example in evenly_spaced(examples, fewest_tokens=PROMPT + LEAST_TRUTH + 1):
        ids = np.asarray(example["input_ids"])
        first = int(special[ids[0]])
        read, truth = ids[: first + PROMPT], ids[first + PROMPT : first + PROMPT + WRITTEN]
        if not special[ids[first : first + PROMPT]].any():
            found.append((read, truth))
        if len(found) == NUM_SAMPLES:
            break
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    shown = []
    for read, truth in found:
        prompt = torch.from_numpy(read)[None].to(model.device)
        generated = cast(Any, model).generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=WRITTEN,
            do_sample=False,
            num_beams=1,
            pad_token_id=pad,
        )[0, len(read) :]
        shown.append(
            Example(
                [
                    Line("prompt", [Run(spelled(tokenizer, read))]),
                    Line("original", [Run(behind(tokenizer, read, truth), "truth")]),
                    Line("written", [Run(behind(tokenizer, read, generated.cpu().numpy()), "new")]),
                ]
            )
        )
    return shown


def filled_gaps(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, examples: HeldOutExamples
) -> list[Example]:
    """Let a masked model fill a gap of one token in each of some texts."""
    shown = []
    for example in evenly_spaced(examples, fewest_tokens=2 * LEAST_WORD):
        ids = np.asarray(example["input_ids"], dtype=np.int64)
        place = gap_in(tokenizer, ids, np.asarray(example["word_starts"]))
        if place is None:
            continue
        inputs: dict[str, Tensor] = {"input_ids": torch.from_numpy(ids.copy())[None].to(model.device)}
        inputs["input_ids"][0, place] = cast(int, tokenizer.mask_token_id)
        if "token_type_ids" in example:
            types = np.asarray(example["token_type_ids"], dtype=np.int64)
            inputs["token_type_ids"] = torch.from_numpy(types)[None].to(model.device)
        outputs = model(**inputs)
        logits = outputs.get("logits", outputs.get("prediction_logits"))
        if logits is None or logits.dim() < 3 or logits.shape[-1] < len(tokenizer):
            return []  # a discriminator
        if not logits[0, place].isfinite().all():
            return []
        values, tokens = logits[0, place].float().softmax(dim=-1)[: len(tokenizer)].topk(NUM_GUESSES)
        names = [spelled(tokenizer, [token], with_special=True).strip() for token in tokens.tolist()]
        truth = spelled(tokenizer, ids[place : place + 1]).strip()
        ranking = Ranking(
            "", [Entry(name, value) for name, value in zip(names, values.tolist(), strict=True)]
        )
        before, after = ids[max(place - SHOWN, 0) : place], ids[place + 1 : place + 1 + SHOWN]
        text = [
            Run(f"{spelled(tokenizer, before)} "),
            Run(truth, "truth"),
            Run(f" {spelled(tokenizer, after)}"),
        ]
        bars = [replace(bar, strong=bar.name == truth) for bar in ranking.bars]
        shown.append(Example([Line("text", text)], bars))
        if len(shown) == NUM_SAMPLES:
            break
    return shown


def gap_in(tokenizer: PreTrainedTokenizerBase, ids: np.ndarray, word_starts: np.ndarray) -> int | None:
    """Find the word of one token and `LEAST_WORD` letters or more that is nearest the middle, if any."""
    starts = word_starts.astype(bool)
    whole = np.flatnonzero(starts[:-1] & starts[1:])
    middle = len(ids) / 2
    for place in sorted(whole.tolist(), key=lambda each: abs(each - middle)):
        word = spelled(tokenizer, ids[place : place + 1]).strip()
        if word.isalpha() and len(word) >= LEAST_WORD:
            return place
    return None


def rewritten(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    objective: TeacherForcing,
    examples: HeldOutExamples,
    seed: int,
) -> list[Example]:
    """Let a sequence-to-sequence model write the targets of some sources."""
    chosen = [each for _, each in zip(range(NUM_SAMPLES), evenly_spaced(examples), strict=False)]
    sources, targets = objective.pairs(chosen, seed)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    written = write(model, sources, cast(int, pad), num_beams=1, max_new_tokens=2 * WRITTEN)
    return [
        Example(
            [
                Line("source", [Run(shortened(tokenizer, source))]),
                Line("target", [Run(shortened(tokenizer, target), "truth")]),
                Line("written", [Run(shortened(tokenizer, own), "new")]),
            ]
        )
        for source, target, own in zip(sources, targets, written, strict=True)
    ]


def shortened(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int] | np.ndarray) -> str:
    """Write the first tokens of a sequence as text, sentinels and gaps included."""
    roles = ("bos", "eos", "pad", "cls", "sep")
    ends = {getattr(tokenizer, f"{role}_token_id") for role in roles}
    kept = [int(idx) for idx in ids if int(idx) not in ends]
    return spelled(tokenizer, kept[: 2 * WRITTEN], with_special=True) + " …" * (len(kept) > 2 * WRITTEN)


def behind(tokenizer: PreTrainedTokenizerBase, read: np.ndarray, written: np.ndarray) -> str:
    """Return what tokens add to the text of those before them: alone they might lose their first space."""
    whole = spelled(tokenizer, [*read.tolist(), *written.tolist()])
    return whole.removeprefix(spelled(tokenizer, read)).strip()


def spelled(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int] | np.ndarray, *, with_special: bool = False
) -> str:
    text = cast(str, tokenizer.decode([int(idx) for idx in ids], skip_special_tokens=not with_special))
    return " ".join(text.split())
