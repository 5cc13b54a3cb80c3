"""What language models do: an encoder fills gaps, and a decoder continues a text.

Shapes: T tokens, V size of the vocabulary, G gaps.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from .ability import GAP, MOST_ANSWERS, Ability, Field, NumberField, TextField, top_field
from .loaded_model import LoadedModel
from .results import Entry, Passage, Piece, Ranking, Result

TOP_P = 0.9
"""Share of the probability from which tokens are drawn (nucleus sampling; Holtzman et al., 2020)."""


class FillGaps(Ability):
    """The words that an encoder expects in the gaps of a text."""

    name = "fill"
    title = "Fill gaps"
    action = "Fill the gaps"
    about = "Write ___ where a word is missing. The model ranks the tokens of its vocabulary for each gap."

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        """An encoder with its LM head and a mask token."""
        is_reader = model.member == "encoder" and model.has_lm_head
        return is_reader and model.tokenizer.mask_token_id is not None

    @property
    def fields(self) -> Sequence[Field]:
        """The text, and how many answers are shown."""
        return [TextField("text", "A text with gaps (___)"), top_field()]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        """Two sentences of the demonstration's kind, one of everyday life."""
        return [
            ["The function returns a ___ of strings."],
            ["If the file does not ___, an error is ___."],
            ["The cat ___ on the roof of the house."],
        ]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        """Rank tokens for each gap, and write the best ones into the text.

        Raises:
            ValueError: The text has no gap, or is too long.
        """
        (text,), top = texts, int(numbers["top"])
        inputs = self.model.inputs(self.with_masks(text))
        probabilities = self.probabilities(inputs)
        pieces = text_with_gaps(self.without_masks(text))
        rankings = [
            Ranking(f"Gap {number}" if len(probabilities) > 1 else "In the gap", self.rank(row, top))
            for number, row in enumerate(probabilities, 1)
        ]
        best = iter([ranking.entries[0].text for ranking in rankings])
        filled = [Piece(next(best), "new") if piece is None else Piece(piece) for piece in pieces]
        return [Passage("With the best answers", filled), *rankings]

    def with_masks(self, text: str) -> str:
        """Replace gaps by the tokenizer's mask token."""
        mask = cast(str, self.model.tokenizer.mask_token)
        masked = GAP.sub(mask, text.replace("[MASK]", mask).replace("<mask>", mask))
        if mask not in masked:
            raise ValueError(
                f"{text.strip()!r} has no gap: write ___ where a word is missing, as in 'The ___ is blue.'"
            )
        return masked

    def without_masks(self, text: str) -> str:
        """Write gaps as ___, whatever the user wrote."""
        return self.with_masks(text).replace(cast(str, self.model.tokenizer.mask_token), "___")

    def probabilities(self, inputs: dict[str, Tensor]) -> Tensor:
        """Compute the probabilities of all tokens in each gap, (G, V)."""
        outputs = self.model.model(**inputs)
        logits = outputs.get("logits", outputs.get("prediction_logits"))[0]
        gaps = inputs["input_ids"][0] == self.model.tokenizer.mask_token_id
        return logits[gaps].float().softmax(dim=-1)

    def rank(self, probabilities: Tensor, top: int) -> list[Entry]:
        """Give the most probable tokens, by their probabilities (V,)."""
        return rank_tokens(self.model, probabilities, top)


class Continue(Ability):
    """How a decoder goes on."""

    name = "continue"
    title = "Continue"
    action = "Continue the text"
    about = (
        "The model continues your text token by token. At temperature 0 it always takes the most probable "
        "token; another draw gives another text."
    )

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        """A decoder with its LM head."""
        return model.member == "decoder" and model.has_lm_head and model.model.can_generate()

    @property
    def fields(self) -> Sequence[Field]:
        """The beginning, and how to go on."""
        return [
            TextField("text", "The beginning of a text", lines=3),
            NumberField("length", "Tokens to write", 40, 1, 400),
            NumberField("temperature", "Temperature", 0.8, 0, 2, 0.1),
            NumberField("draw", "Draw", 1, 1, 1000),
            NumberField("top", "Candidates", 5, 1, MOST_ANSWERS),
        ]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        """Two beginnings of the demonstration's kind, one of a story."""
        return [["Return the number of"], ["The function raises an error if"], ["One day, the little dog"]]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        """Continue a text, and rank the tokens that may come first.

        Raises:
            ValueError: The text is too long to be continued.
        """
        text = texts[0].rstrip()
        ids = self.encode(text)
        written = self.generate(
            ids, int(numbers["length"]), numbers["temperature"], seed=int(numbers["draw"])
        )
        new = self.model.tokenizer.decode(written, skip_special_tokens=True)
        after = self.model.model(input_ids=ids).logits[0, -1].float().softmax(dim=-1)
        return [
            Passage("Continued", [Piece(text), Piece(cast(str, new), "new")]),
            Ranking("Candidates for the first token", rank_tokens(self.model, after, int(numbers["top"]))),
        ]

    def encode(self, text: str) -> Tensor:
        """Encode a beginning as in training, (1, T): the begin token first and no end token."""
        tokenizer = self.model.tokenizer
        ids: list[int] = self.model.inputs(text)["input_ids"][0].tolist()
        begin: Any = tokenizer.bos_token_id
        if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
            ids.pop()
        if begin is not None and ids[0] != begin and self.begins_with_bos:
            ids.insert(0, begin)
        if len(ids) >= self.model.max_length:
            raise ValueError(
                f"the text fills all {self.model.max_length:,} tokens that {self.model.title} reads: "
                "shorten it"
            )
        return torch.tensor([ids], device=self.model.device)

    @property
    def begins_with_bos(self) -> bool:
        """Whether texts began with the bos token in training, although the tokenizer does not put it there.

        Those of Tercet's models did, also where the model was exported, and those of models like GPT-2, where
        one token separates documents. Of other stock models the tokenizer is trusted.
        """
        tokenizer = self.model.tokenizer
        is_ours = self.model.config.model_type.startswith("tercet") or bool(self.model.run.certificate)
        return is_ours or tokenizer.bos_token_id == tokenizer.eos_token_id

    def generate(self, ids: Tensor, length: int, temperature: float, seed: int) -> list[int]:
        """Generate tokens, greedily at temperature 0, else from the nucleus of the distribution."""
        how: dict[str, Any] = {"do_sample": False, "num_beams": 1}
        if temperature:
            how = {"do_sample": True, "temperature": temperature, "top_p": TOP_P, "num_beams": 1}
        room = self.model.max_length - ids.shape[1]
        end = self.model.tokenizer.eos_token_id
        pad = self.model.tokenizer.pad_token_id
        generator: Any = self.model.model
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            written = generator.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=min(length, room),
                pad_token_id=end if pad is None else pad,
                **how,
            )
        return written[0, ids.shape[1] :].tolist()


def rank_tokens(model: LoadedModel, probabilities: Tensor, top: int) -> list[Entry]:
    """Give the most probable tokens of a vocabulary, by their probabilities (V,)."""
    values, ids = probabilities[: len(model.tokenizer)].topk(min(top, len(probabilities)))
    words = [spelled(model, idx) for idx in ids.tolist()]
    return [Entry(word, value) for word, value in zip(words, values.tolist(), strict=True)]


def spelled(model: LoadedModel, token_id: int) -> str:
    """Write a token as text, and one that is no text by its name."""
    text = cast(str, model.tokenizer.decode([token_id]))
    return text.strip() or repr(text) if text else cast(str, model.tokenizer.convert_ids_to_tokens(token_id))


def text_with_gaps(text: str) -> list[str | None]:
    """Cut a text at its gaps, which are None in the list.

    >>> text_with_gaps("The ___ is blue.")
    ['The ', None, ' is blue.']
    """
    parts: list[str | None] = []
    for number, part in enumerate(GAP.split(text)):
        parts += [part] if number == 0 else [None, part]
    return [part for part in parts if part != ""]
