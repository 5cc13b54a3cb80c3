"""How a language model goes on from the beginning of a text: a decoder, or the forward half of ELMo and of
character models.

Shapes: T tokens, V size of the vocabulary.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor
from transformers import TemperatureLogitsWarper, TopPLogitsWarper

from ...modeling import TercetCharacterLanguageModel, TercetElmoForLanguageModeling
from ...reports.blocks import Passage, Ranking, Result, Run
from .ability import MOST_ANSWERS, Ability, Field, NumberField, TextField
from .language import rank_tokens
from .loaded_model import LoadedModel

TOP_P = 0.9
"""Share of the probability from which tokens are drawn (nucleus sampling; Holtzman et al., 2020)."""

UNSHOWN: dict[str, None] = dict.fromkeys(
    (
        "bad_words_ids",
        "begin_suppress_tokens",
        "epsilon_cutoff",
        "eta_cutoff",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "guidance_scale",
        "min_length",
        "min_new_tokens",
        "min_p",
        "no_repeat_ngram_size",
        "repetition_penalty",
        "sequence_bias",
        "suppress_tokens",
        "top_h",
        "top_k",
        "typical_p",
        "watermarking_config",
    )
)
"""What changes probabilities without being shown, by transformers' defaults or the model's: turned off."""

CONTINUING = "##"
"""What a token begins with that goes on with a word: ELMo predicts whole words alone."""


class Continuation(Ability):
    """How a language model goes on. Abstract: models differ in how they begin, and in how they write."""

    name = "continue"
    title = "Continue"
    action = "Continue the text"
    about = (
        "The model continues your text token by token. At temperature 0 it always takes the most probable "
        "token; another draw gives another text."
    )

    @property
    def fields(self) -> Sequence[Field]:
        return [
            TextField("text", "The beginning of a text", lines=3),
            NumberField("length", "Tokens to write", 40, 1, 400),
            NumberField("temperature", "Temperature", 0.8, 0, 2, 0.1),
            NumberField("draw", "Draw", 1, 1, 1000),
            NumberField("top", "Candidates", 5, 1, MOST_ANSWERS),
        ]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        return [["Return the number of"], ["The function raises an error if"], ["One day, the little dog"]]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        text = texts[0].rstrip()
        ids = self.encode(text)
        if ids.shape[1] >= self.model.max_length:
            raise ValueError(
                f"the text fills all {self.model.max_length:,} tokens that {self.model.title} reads: "
                "shorten it"
            )
        written = self.generate(
            ids, int(numbers["length"]), numbers["temperature"], seed=int(numbers["draw"])
        )
        after = self.scores(ids).float().softmax(dim=-1)
        return [
            Passage("Continued", [Run(text), Run(self.spell(ids, written), "new")]),
            Ranking("Candidates for the first token", rank_tokens(self.model, after, int(numbers["top"]))),
        ]

    def generate(self, ids: Tensor, length: int, temperature: float, seed: int) -> list[int]:
        """Write tokens behind a beginning (1, T), as many as the model has room for."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.write(ids, min(length, self.model.max_length - ids.shape[1]), temperature)

    @abstractmethod
    def encode(self, text: str) -> Tensor:
        """Encode a beginning as in training, (1, T): with what begins a text, and without what ends it."""

    @abstractmethod
    def scores(self, ids: Tensor) -> Tensor:
        """Score the tokens that may follow a beginning (1, T): logits (V,)."""

    @abstractmethod
    def write(self, ids: Tensor, length: int, temperature: float) -> list[int]:
        """Write tokens, greedily at temperature 0, else from the nucleus of the distribution."""

    def spell(self, ids: Tensor, written: list[int]) -> str:
        """Return what the tokens written behind a beginning (1, T) add to its text.

        By themselves they would lose the space before a first word (SentencePiece), or its absence (`##`).
        """
        known = ids[0].tolist()
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        before, whole = (
            cast(str, self.model.tokenizer.decode(each, **options)) for each in (known, known + written)
        )
        return whole.removeprefix(before)


class Continue(Continuation):
    """How a decoder goes on."""

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        return model.member == "decoder" and model.has_lm_head and model.model.can_generate()

    def encode(self, text: str) -> Tensor:
        tokenizer = self.model.tokenizer
        ids: list[int] = self.model.inputs(text)["input_ids"][0].tolist()
        if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
            ids.pop()
        return torch.tensor([self.model.opened(ids)], device=self.model.device)

    def scores(self, ids: Tensor) -> Tensor:
        return self.model.model(input_ids=ids).logits[0, -1]

    def write(self, ids: Tensor, length: int, temperature: float) -> list[int]:
        how: dict[str, Any] = {"do_sample": False}
        if temperature:
            how = {"do_sample": True, "temperature": temperature, "top_p": TOP_P}
        end = self.model.tokenizer.eos_token_id
        pad = self.model.tokenizer.pad_token_id
        generator: Any = self.model.model
        written = generator.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=length,
            num_beams=1,
            pad_token_id=end if pad is None else pad,
            **UNSHOWN,
            **how,
        )
        return written[0, ids.shape[1] :].tolist()


class ContinueForwards(Continuation):
    """How the forward half of a model goes on that has also learned to read backwards.

    The text is read anew for every token: these models keep no state from call to call.
    """

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        return isinstance(model.model, TercetCharacterLanguageModel | TercetElmoForLanguageModeling)

    def encode(self, text: str) -> Tensor:
        ids = self.model.inputs(text)["input_ids"]
        ends = ids.shape[1] > 1 and int(ids[0, -1]) == self.model.tokenizer.sep_token_id
        return ids[:, :-1] if ends else ids

    def scores(self, ids: Tensor) -> Tensor:
        return self.model.model(input_ids=ids).forward_logits[0, -1]

    def write(self, ids: Tensor, length: int, temperature: float) -> list[int]:
        written: list[int] = []
        for _ in range(length):
            so_far = torch.cat([ids, ids.new_tensor([written])], dim=1)
            scores = self.scores(so_far).float()
            scores[self.unwritable] = -torch.inf
            token = self.draw(scores, temperature)
            if token == self.model.tokenizer.sep_token_id:
                break
            written.append(token)
        return written

    @cached_property
    def unwritable(self) -> list[int]:
        """List what is no text: special tokens but the end, and tokens that go on with a word."""
        tokenizer = self.model.tokenizer
        names = tokenizer.get_vocab().items()
        special = {idx for idx in tokenizer.all_special_ids if idx != tokenizer.sep_token_id}
        beyond = range(len(tokenizer), self.model.config.vocab_size)
        within = (idx for name, idx in names if name.startswith(CONTINUING) and name != CONTINUING)
        return sorted(special.union(beyond, within))

    def draw(self, scores: Tensor, temperature: float) -> int:
        """Draw a token by its score (V,)."""
        if not temperature:
            return int(scores.argmax())
        ids = torch.empty(1, 0, dtype=torch.long, device=scores.device)
        for warp in (TemperatureLogitsWarper(temperature), TopPLogitsWarper(TOP_P)):
            scores = warp(ids, scores.view(1, -1))[0]  # pyright: ignore[reportArgumentType]
        return int(scores.softmax(dim=-1).multinomial(1))
