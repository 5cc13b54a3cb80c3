"""What an encoder's language model does: it fills gaps.

Shapes: T tokens, V size of the vocabulary, G gaps.
"""

from collections.abc import Sequence
from typing import cast

from torch import Tensor

from ...reports.blocks import Entry, Passage, Ranking, Result, Run
from .ability import GAP, Ability, Field, TextField, top_field
from .loaded_model import LoadedModel


class FillGaps(Ability):
    """The words that an encoder expects in the gaps of a text."""

    name = "fill"
    title = "Fill gaps"
    action = "Fill the gaps"
    about = "Write ___ where a word is missing. The model ranks the tokens of its vocabulary for each gap."

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        is_reader = model.member == "encoder" and model.has_lm_head
        return is_reader and model.tokenizer.mask_token_id is not None

    @property
    def fields(self) -> Sequence[Field]:
        return [TextField("text", "A text with gaps (___)"), top_field()]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        return [
            ["The function returns a ___ of strings."],
            ["If the file does not ___, an error is ___."],
            ["The cat ___ on the roof of the house."],
        ]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        (text,), top = texts, int(numbers["top"])
        masked = self.with_masks(text)
        probabilities = self.probabilities(self.model.inputs(masked))
        pieces = text_with_gaps(masked, cast(str, self.model.tokenizer.mask_token))
        rankings = [
            Ranking(f"Gap {number}" if len(probabilities) > 1 else "In the gap", self.rank(row, top))
            for number, row in enumerate(probabilities, 1)
        ]
        best = iter([ranking.entries[0].text for ranking in rankings])
        filled = [Run(next(best), "new") if piece is None else Run(piece) for piece in pieces]
        return [Passage("With the best answers", filled), *rankings]

    def with_masks(self, text: str) -> str:
        mask = cast(str, self.model.tokenizer.mask_token)
        masked = GAP.sub(mask, text.replace("[MASK]", mask).replace("<mask>", mask))
        if mask not in masked:
            raise ValueError(
                f"{text.strip()!r:.60} has no gap: write ___ for the missing word, as in 'The ___ is blue.'"
            )
        return masked

    def probabilities(self, inputs: dict[str, Tensor]) -> Tensor:
        """Compute the probabilities of all tokens in each gap, (G, V)."""
        outputs = self.model.model(**inputs)
        logits = outputs.get("logits", outputs.get("prediction_logits"))[0]
        gaps = inputs["input_ids"][0] == self.model.tokenizer.mask_token_id
        return logits[gaps].float().softmax(dim=-1)

    def rank(self, probabilities: Tensor, top: int) -> list[Entry]:
        return rank_tokens(self.model, probabilities, top)


def rank_tokens(model: LoadedModel, probabilities: Tensor, top: int) -> list[Entry]:
    """Return the most probable tokens of a vocabulary, by their probabilities (V,)."""
    values, ids = probabilities[: len(model.tokenizer)].topk(min(top, len(probabilities)))
    words = [spelled(model, idx) for idx in ids.tolist()]
    return [Entry(word, value) for word, value in zip(words, values.tolist(), strict=True)]


def spelled(model: LoadedModel, token_id: int) -> str:
    """Write a token as text, and one that is no text by its name."""
    text = cast(str, model.tokenizer.decode([token_id]))
    return text.strip() or repr(text) if text else cast(str, model.tokenizer.convert_ids_to_tokens(token_id))


def text_with_gaps(text: str, mask: str) -> list[str | None]:
    """Cut a text at its masks, which are None in the list.

    >>> text_with_gaps("The [MASK] is blue.", "[MASK]")
    ['The ', None, ' is blue.']
    """
    first, *others = text.split(mask)
    parts: list[str | None] = [first]
    for part in others:
        parts += [None, part]
    return [part for part in parts if part != ""]
