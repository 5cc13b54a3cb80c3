"""Masked language modeling: mask some tokens and predict them (Devlin et al., 2019, section 3.1).

    chosen tokens, 15 %:   80 % become [MASK],   10 % a random token,   10 % stay
    my dog is hairy   ->   my dog is [MASK]  |   my dog is apple    |   my dog is hairy      target: hairy

The 20 % without [MASK] make the model doubt every token that it sees. Deviations: every token is chosen by
its own coin, as in transformers' collator, where the paper's code takes a fixed number from each sequence;
the random token is never a special one.

Legend: N packed tokens of the batch, S sequences, n chosen tokens, W words, V ids of the tokenizer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..modeling import TercetEncoderForMaskedLM
from ..text.chunks import FullSequences
from ..text.special_tokens import is_special, required_token_id
from ..text.tokenizer import frame_ids
from ..training.examples import gather, has_field
from ..training.objective import IGNORE, Batch, Example
from .base_recipe import (
    BaseObjectiveRecipe,
    Corpus,
    FullSequence,
    Rate,
    Share,
    check_rate,
    check_share,
    single_text,
)
from .randomness import Draws, GeneratedDraws, HashedDraws
from .streams import one_stream
from .token_objective import Noise, OutputPositions, TokenObjective, target_positions

CHOICE, REPLACEMENT, RANDOM_TOKEN = range(3)
"""What a random number decides: whether a token is a target, what replaces it, by which random token."""

Choose = Callable[[Sequence[Example], np.ndarray, float, Draws], np.ndarray]
"""Decides which packed tokens (N,) of some examples become targets; special ones are struck out later."""


def choose_tokens(
    examples: Sequence[Example], special: np.ndarray, probability: float, draws: Draws
) -> np.ndarray:
    """Choose every token by its own coin."""
    return draws.uniform(np.arange(len(special)), CHOICE) < probability


def choose_words(
    examples: Sequence[Example], special: np.ndarray, probability: float, draws: Draws
) -> np.ndarray:
    """Choose every word, with all of its tokens, by the coin of its first one.

    A token is in one word, so it is a target as often as its word is chosen: the token rate is met in
    expectation, whatever the words' lengths. Words are read from `word_starts`, and end also where a special
    token stands or the next sequence begins. (Whole-word masking of BERT's code of May 2019.)
    """
    if not has_field(examples, "word_starts"):
        raise ValueError(
            "whole-word masking needs examples with `word_starts`, and these have none: use a fast "
            "tokenizer, or set whole_word: false"
        )
    words = gather(examples, "word_starts")
    starts = words.values | special
    starts[1:] |= special[:-1]
    starts[words.edges[:-1]] = True
    begins = np.flatnonzero(starts)  # (W,)
    return (draws.uniform(begins, CHOICE) < probability).repeat(np.diff(begins, append=len(starts)))


class Corruption:
    """The replacement of chosen tokens: a function of tokens and randomness.

    Args:
        tokenizer: Has a mask token.
        mlm_probability: Share of the ordinary tokens that become targets.
        mask_replace_prob: Share of the targets that become [MASK].
        random_replace_prob: Share of the targets that become a random token of the vocabulary, never a
            special one.
        whole_word: Whether all tokens of a word are chosen at once. The shares are of tokens in both cases:
            what replaces a chosen token does not depend on its word's others, as in BERT's code.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        whole_word: bool = False,
    ):
        self.mlm_probability = check_rate("mlm_probability", mlm_probability)
        self.mask_replace_prob = check_share("mask_replace_prob", mask_replace_prob)
        self.random_replace_prob = check_share("random_replace_prob", random_replace_prob)
        if (replaced := mask_replace_prob + random_replace_prob) > 1 + 1e-9:
            raise ValueError(
                f"mask_replace_prob + random_replace_prob is {replaced:g}, more than all targets: lower one "
                "of them"
            )
        self.choose: Choose = choose_words if whole_word else choose_tokens
        self.mask_id = required_token_id(tokenizer, "mask", "masked language modeling")
        self.special = is_special(tokenizer)  # (V,)
        self.ordinary_ids = np.flatnonzero(~self.special)

    def __call__(
        self, examples: Sequence[Example], ids: np.ndarray, draws: Draws
    ) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt the packed `ids` (N,) of the examples; return them and their labels, both (N,)."""
        special = self.special[ids]
        chosen = np.flatnonzero(
            self.choose(examples, special, self.mlm_probability, draws) & ~special
        )  # (n,)
        labels = np.full_like(ids, IGNORE)
        labels[chosen] = ids[chosen]

        draw = draws.uniform(chosen, REPLACEMENT)
        is_masked = draw < self.mask_replace_prob
        is_random = ~is_masked & (draw < self.mask_replace_prob + self.random_replace_prob)
        corrupted = ids.copy()
        corrupted[chosen[is_masked]] = self.mask_id
        randomized = chosen[is_random]
        random_ids = draws.below(len(self.ordinary_ids), randomized, RANDOM_TOKEN)
        corrupted[randomized] = self.ordinary_ids[random_ids]
        return corrupted, labels


class DynamicMasking:
    """A new corruption each time that an example is seen (Liu et al., 2019, section 4.1)."""

    noise: Noise = "dynamic"

    def __init__(self, corruption: Corruption):
        self.corruption = corruption

    def __call__(
        self, examples: Sequence[Example], ids: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt the whole pack at once."""
        return self.corruption(examples, ids, GeneratedDraws(rng))


class StaticMasking:
    """The same corruption of an example in every epoch and every batch: a function of `seed` and its `index`.

    BERT's data is masked once in this way (Devlin et al., 2019), and then repeated with several masks, which
    is not done here.
    """

    noise: Noise = "static"

    def __init__(self, corruption: Corruption, seed: int):
        self.corruption = corruption
        self.seed = seed

    def __call__(
        self, examples: Sequence[Example], ids: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Corrupt the whole pack at once, by what each example is, and not by `rng`."""
        lengths = gather(examples, "input_ids").lengths
        draws = HashedDraws(self.seed, gather(examples, "index").values, lengths)
        return self.corruption(examples, ids, draws)


class MaskedLanguageModeling(TokenObjective):
    """Predict the masked tokens of an encoder's input; the term is `mlm`.

    Args:
        masking: Gives the corrupted tokens and their labels: `DynamicMasking` or `StaticMasking`.
    """

    def __init__(self, masking: DynamicMasking | StaticMasking):
        super().__init__("mlm")
        self.masking = masking
        self.noise = masking.noise

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack the examples, then corrupt all of their tokens at once."""
        batch = one_stream(gather(examples, "input_ids"))
        ids = batch["input_ids"][0].numpy()
        corrupted, labels = self.masking(examples, ids, rng)
        batch["input_ids"], batch["labels"] = (
            torch.from_numpy(corrupted)[None],
            torch.from_numpy(labels)[None],
        )
        if has_field(examples, "token_type_ids"):
            types = gather(examples, "token_type_ids").values
            batch["token_type_ids"] = torch.from_numpy(types.astype(np.int64))[None]
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the chosen tokens."""
        return {"mlm": (batch["labels"] != IGNORE).count_nonzero()}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sum the cross-entropy of the chosen tokens."""
        return {"mlm": model(**batch, reduction="sum").loss}

    def output_positions(self, batch: Batch) -> OutputPositions:
        """Find the chosen tokens: each is predicted at its own position."""
        positions = target_positions(batch["labels"], IGNORE)
        return OutputPositions(positions, batch["labels"][0, positions])


@dataclass(frozen=True)
class MaskingRecipe(BaseObjectiveRecipe):
    """How tokens are masked. Abstract: an objective adds its model and what else is learned."""

    template = "pair"

    RENAMED: ClassVar[Mapping[str, str]] = {
        "rate": "mlm_probability",
        "masked": "mask_replace_prob",
        "randomized": "random_replace_prob",
        "unit": "whole_word (true or false)",
    }

    mlm_probability: Rate = 0.15
    """Share of the tokens that become targets."""
    mask_replace_prob: Share = 0.8
    """Share of the targets that are replaced by [MASK]."""
    random_replace_prob: Share = 0.1
    """Share of the targets that are replaced by a random token; the rest stays as it is."""
    whole_word: bool = False
    """Whether all tokens of a word are masked at once."""

    def corruption(self, tokenizer: PreTrainedTokenizerBase) -> Corruption:
        """Build what replaces tokens."""
        return Corruption(
            tokenizer,
            self.mlm_probability,
            self.mask_replace_prob,
            self.random_replace_prob,
            self.whole_word,
        )


@dataclass(frozen=True)
class MaskedLanguageModelingRecipe(MaskingRecipe):
    """Predict masked tokens (BERT, RoBERTa)."""

    model_class = TercetEncoderForMaskedLM

    kind: Literal["masked_language_modeling"]
    """Which objective this is."""
    masking: Literal["dynamic", "static"] = "dynamic"
    """Whether an example is masked anew whenever it is seen (`dynamic`), or always the same (`static`)."""

    def build(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        decoder_start_id: int | None = None,
    ) -> MaskedLanguageModeling:
        """Build the objective; static masks are a function of `seed`."""
        corruption = self.corruption(tokenizer)
        is_static = self.masking == "static"
        return MaskedLanguageModeling(
            StaticMasking(corruption, seed) if is_static else DynamicMasking(corruption)
        )

    def examples(
        self,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sequence_length: int,
        seed: int = 0,
        isolate_documents: bool = True,
    ) -> FullSequences:
        """Cut sequences and frame them, [CLS] text [SEP]."""
        text = single_text(corpus, self.kind)
        return FullSequences(text, sequence_length, *frame_ids(tokenizer), isolate_documents)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        """Mask a share of the text: [CLS] and [SEP] are never targets."""
        return FullSequence(sequence_length, 0, self.mlm_probability * (sequence_length - 2))
