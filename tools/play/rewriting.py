"""What sequence-to-sequence models do: translate a text, restore its gaps, or write another one for it.

Shapes: A answers, T tokens of the longest answer.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ...data.tokenizers.special_tokens import SENTINEL, sentinel_ids
from ...finetune.tasks.generation import Generation
from ...reports.blocks import Entry, Passage, Ranking, Result, Run
from .ability import GAP, Ability, Field, NumberField, TextField
from .loaded_model import LoadedModel

TRANSLATORS = ("marian", "m2m_100", "mbart", "nllb-moe", "fsmt", "tercet_recurrent_seq2seq")
"""Types of models that do nothing but translate."""

LENGTH = 64
"""Tokens of an answer, at most, where the user chooses no other number."""

NAMED_SENTINEL = re.compile(r"<extra_id_(\d+)>")


class TextToText(Ability):
    """A text for a text. Abstract: each kind prepares the source and reads the answers."""

    @property
    def fields(self) -> Sequence[Field]:
        longest = self.task.recipe.longest_target if self.task else LENGTH
        return [
            TextField("text", self.label, lines=3),
            NumberField("beams", "Beams", 4, 1, 12),
            NumberField("answers", "Answers", 3, 1, 12),
            NumberField("length", "Tokens to write", min(longest, self.model.max_length), 1, 512),
        ]

    @property
    def label(self) -> str:
        """Name the field of the source."""
        return "A text"

    @property
    def task(self) -> Generation | None:
        """What the model was fine-tuned to write."""
        return self.model.task if isinstance(self.model.task, Generation) else None

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        beams = int(numbers["beams"])
        source = self.prepare(texts[0])
        inputs = self.model.inputs(source)
        answers = self.generate(inputs, beams, min(int(numbers["answers"]), beams), int(numbers["length"]))
        likely = self.probability_per_token(inputs, answers)
        order = sorted(range(len(answers)), key=lambda each: -likely[each])
        best = answers[order[0]]
        entries = [Entry(self.read(answers[each], texts[0]), likely[each]) for each in order]
        return [
            Passage("Answer", self.pieces(best, texts[0])),
            Ranking("All answers, by their probability per token", entries),
        ]

    def prepare(self, text: str) -> str:
        """Return what the encoder reads for a text."""
        return (self.task.recipe.prefix if self.task else "") + text.strip()

    def generate(self, inputs: dict[str, Tensor], beams: int, answers: int, length: int) -> Tensor:
        """Search the best answers, (A, T), with the token that the decoder starts from."""
        model: Any = self.model.model
        sequences = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        return model.generate(
            **sequences,
            num_beams=beams,
            num_return_sequences=answers,
            max_new_tokens=min(length, self.model.max_length - 1),
            do_sample=False,
        )

    def probability_per_token(self, inputs: dict[str, Tensor], answers: Tensor) -> list[float]:
        """Compute the geometric mean of the probabilities of each answer's tokens, (A)."""
        rows = {name: inputs[name].expand(len(answers), -1) for name in ("input_ids", "attention_mask")}
        logits = self.model.model(**rows, decoder_input_ids=answers[:, :-1]).logits
        targets = answers[:, 1:]
        logs = logits.float().log_softmax(dim=-1).gather(2, targets[..., None])[..., 0]
        ends = torch.isin(targets, targets.new_tensor(self.ends))
        is_written = (ends.cumsum(dim=1) - ends.long()) == 0  # up to the first end, which counts
        sums = torch.where(is_written, logs, 0).sum(dim=1)
        return (sums / is_written.sum(dim=1)).exp().tolist()

    @property
    def ends(self) -> list[int]:
        """List the ids that end an answer for `generate`, which are not always the tokenizer's."""
        told: Any = cast(Any, self.model.model).generation_config.eos_token_id
        return [] if told is None else told if isinstance(told, list) else [told]

    def pieces(self, answer: Tensor, text: str) -> list[Run]:
        """Show an answer (T), as the best one."""
        return [Run(self.read(answer, text), "new")]

    def read(self, answer: Tensor, text: str) -> str:
        """Write an answer (T) as text."""
        return cast(str, self.model.tokenizer.decode(answer, skip_special_tokens=True)).strip() or "(nothing)"


class Translate(TextToText):
    """A text in another language."""

    name = "translate"
    title = "Translate"
    action = "Translate"
    about = "The model translates your text. The answers of the beam search stand below the best one."

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        return model.member == "seq2seq" and model.model.can_generate() and is_translator(model)

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        own = [[each["source"]] for each in self.model.run.evaluation.get("samples", []) if "source" in each]
        return own or [
            ["Two young men are walking on the street."],
            ["A dog is running through the snow."],
            ["A woman is playing a guitar in front of a house."],
        ]


class Restore(TextToText):
    """A text whose gaps the decoder fills."""

    name = "restore"
    title = "Restore"
    action = "Restore the text"
    about = "Write ___ where words are missing. The model writes as many as it thinks fit."

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        has_marks = len(sentinel_ids(model.tokenizer)) > 0 or model.tokenizer.mask_token_id is not None
        can_write = model.member == "seq2seq" and model.has_lm_head and model.model.can_generate()
        return can_write and has_marks and not is_translator(model)

    @property
    def label(self) -> str:
        return "A text with gaps (___)"

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        return [
            ["The function ___ a list of strings."],
            ["If ___, an error is raised."],
            ["The little dog ___ and went home."],
        ]

    def prepare(self, text: str) -> str:
        marked = NAMED_SENTINEL.sub("___", text.strip()).replace("<mask>", "___").replace("[MASK]", "___")
        num_gaps, sentinels = len(GAP.findall(marked)), len(sentinel_ids(self.model.tokenizer))
        if not num_gaps:
            raise ValueError(
                f"{text.strip()!r:.60} has no gap: write ___ for missing words, as in 'The ___ is blue.'"
            )
        if not sentinels:
            return GAP.sub(cast(str, self.model.tokenizer.mask_token), marked)
        if num_gaps > sentinels:
            raise ValueError(f"the text has {num_gaps} gaps, but the model knows {sentinels}: leave some out")
        names = iter([SENTINEL.format(number) for number in range(num_gaps)])
        return GAP.sub(lambda _: next(names), marked)

    def pieces(self, answer: Tensor, text: str) -> list[Run]:
        spans = self.spans(answer)
        if spans is None:
            return super().pieces(answer, text)
        parts = NAMED_SENTINEL.split(self.prepare(text))
        pieces = [Run(parts[0])]
        for number, after in zip(parts[1::2], parts[2::2], strict=True):
            pieces += [Run(spans.get(int(number), "___"), "new"), Run(after)]
        return [piece for piece in pieces if piece.text]

    def read(self, answer: Tensor, text: str) -> str:
        spans = self.spans(answer)
        if spans is None:
            return super().read(answer, text)
        return " | ".join(spans.values()) or "(nothing)"

    def spans(self, answer: Tensor) -> dict[int, str] | None:
        """Read what an answer says of each gap, or None if the model knows no sentinels."""
        numbers = {idx: number for number, idx in enumerate(sentinel_ids(self.model.tokenizer).tolist())}
        if not numbers:
            return None
        found: dict[int, list[int]] = {}
        current: list[int] = []
        for idx in answer.tolist():
            if idx in numbers:
                current = found.setdefault(numbers[idx], [])
            else:
                current.append(idx)
        decode = self.model.tokenizer.decode
        return {
            number: cast(str, decode(ids, skip_special_tokens=True)).strip() for number, ids in found.items()
        }


class Write(TextToText):
    """A text for a text, as the model has learned it."""

    name = "write"
    title = "Write"
    action = "Write"
    about = "The model writes a text for yours: a summary, an answer, or what else it was trained on."

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        can_write = model.member == "seq2seq" and model.model.can_generate()
        return can_write and not (Translate.applies(model) or Restore.applies(model))

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        return [["Return the number of items in the list, or zero."]]


def is_translator(model: LoadedModel) -> bool:
    """Return whether a model translates, by its recipe or by its type."""
    objective = model.run.recipe.get("objective") or {}
    return objective.get("kind") == "translation" or model.config.model_type in TRANSLATORS
