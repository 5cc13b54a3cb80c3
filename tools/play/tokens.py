"""How a model cuts a text into tokens, and how probable a decoder finds each."""

from collections.abc import Sequence

import torch

from ...reports.blocks import Note, Result, Token, Tokens
from .ability import Ability, Field, TextField
from .language import spelled
from .loaded_model import LoadedModel


class ShowTokens(Ability):
    """The tokens of a text."""

    name = "tokens"
    title = "Tokens"
    action = "Show the tokens"
    about = (
        "How the tokenizer cuts your text, with the number of each token. Of a decoder, the percentage is "
        "the token's probability after those before it: the lower, the less expected."
    )

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        return True

    @property
    def fields(self) -> Sequence[Field]:
        return [TextField("text", "A text", lines=3)]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        return [
            ["The function returns a list of strings."],
            ["The animal did not cross the street because it was too tired."],
            ["Antidisestablishmentarianism is rarely tokenized as one word."],
        ]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        ids: list[int] = self.model.inputs(texts[0])["input_ids"][0].tolist()
        probabilities = self.probabilities(ids)
        tokens = [
            Token(spelled(self.model, token_id), token_id, probability)
            for token_id, probability in zip(ids, probabilities, strict=True)
        ]
        special = set(self.model.tokenizer.all_special_ids)
        count = sum(token_id not in special for token_id in ids)
        unknown = self.model.tokenizer.unk_token_id
        characters = len(texts[0])
        return [
            Tokens(f"{len(ids)} tokens", tokens),
            Note(
                f"{characters:,} characters, {characters / max(count, 1):.1f} per token; "
                f"{sum(token_id == unknown for token_id in ids)} unknown, {len(ids) - count} special."
            ),
        ]

    def probabilities(self, ids: list[int]) -> list[float | None]:
        """Return the probability of each token after those before it, if the model is a decoder that knows.

        The first one has none where nothing opens a text.
        """
        if not (self.model.member == "decoder" and self.model.has_lm_head):
            return [None] * len(ids)
        stream = torch.tensor([self.model.opened(ids)], device=self.model.device)
        unknown: list[float | None] = [None] * (len(ids) - stream.shape[1] + 1)
        if stream.shape[1] == 1:
            return unknown
        logits = self.model.model(input_ids=stream[:, :-1]).logits[0].float()
        return unknown + logits.softmax(dim=-1).gather(1, stream[0, 1:, None])[:, 0].tolist()
