"""What is raced: a stock model with its stock recipe against ours, and the loss that decides.

Both sides read the same tokens: the sequences that our recipe cuts from its training text, by its tokenizer.
Both are judged by the same targets of the same held-out sequences: for the encoder, the 15 % of tokens that
BERT hides, hidden once and for all; for the decoder, every token but the first of a sequence.

The encoders learn masked tokens alone: that is what transformers' collator makes, and what RoBERTa kept (Liu
et al., 2019, section 4.2). Sentence pairs would cost the stock side time for something that is not judged.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tercet.configs.recipe import load_recipe
from tercet.objectives.causal_language_modeling import CausalLanguageModelingRecipe
from tercet.objectives.masked_language_modeling import MaskedLanguageModelingRecipe
from tercet.objectives.recipes import SingleObjectiveRecipe
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.text import context_of, examples_of, open_text, tokenize
from tercet.training.examples import Examples, pick
from tercet.training.objective import Batch, Example, Objective

HELD_OUT = 512
"""Sequences of the validation text that judge."""

AT_ONCE = 32
"""Sequences that are judged at once."""


@dataclass(frozen=True)
class Contest:
    """One race: our recipe, and what the stock side's paper says."""

    name: str
    recipe: str
    """Our side: a shipped recipe."""
    stock: Callable[[PretrainingRecipe, PreTrainedTokenizerBase], PreTrainedModel]
    """Builds transformers' model, of our size and for our vocabulary."""
    collator: Callable[[PreTrainedTokenizerBase], DataCollatorForLanguageModeling]
    """Builds transformers' collator, which pads a batch to its longest sequence."""
    judged: SingleObjectiveRecipe
    """What the deciding loss is the mean of."""
    batch_size: int
    """Sequences of a step of the stock side."""
    rates: tuple[float, ...]
    """Learning rates among which the stock side may choose; the first one is the published one."""
    schedule: str
    """How its rate falls, in transformers' words."""
    betas: tuple[float, float]
    weight_decay: float
    warmup_ratio: float = 0.1
    """Share of its steps in which its rate rises."""

    @property
    def figures(self) -> dict[str, Any]:
        """What both sides are called and told, without what builds them."""
        return {name: each for name, each in vars(self).items() if isinstance(each, (str, int, float, tuple))}

    def our_recipe(self, data: Path, folder: Path, overrides: Iterable[str] = ()) -> PretrainingRecipe:
        """Read our recipe for the text in `data`; tokenizer and tokens go below `folder`."""
        places = [f"corpus.{split}={data / split}" for split in ("train", "validation")]
        places += [f"corpus.cache={folder / 'cache'}", f"output={folder}"]
        return load_recipe(PretrainingRecipe, self.recipe, [*places, *overrides])

    def objective(self, recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> Objective:
        """Build the objective whose loss decides, whatever the recipe learns from."""
        return self.judged.build(context_of(recipe, tokenizer))

    def judges(self, recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> list[Batch]:
        """Draw, corrupt and pack the held-out sequences, the same ones whenever asked."""
        sample, objective = held_out_sample(recipe, tokenizer), self.objective(recipe, tokenizer)
        return [
            objective.collate(pick(sample, np.arange(start, min(start + AT_ONCE, len(sample)))), 0)
            for start in range(0, len(sample), AT_ONCE)
        ]


def build_bert(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build BERT with the head for masked tokens."""
    sizes: dict[str, Any] = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 1024, "max_position_embeddings": recipe.corpus.sequence_length}
    signs: dict[str, Any] = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    return BertForMaskedLM(BertConfig(**sizes, **signs))


def build_gpt2(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Build GPT-2 with its head."""
    sizes: dict[str, Any] = {"n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": len(tokenizer)}
    signs: dict[str, Any] = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id")}
    return GPT2LMHeadModel(
        GPT2Config(**sizes, **signs, n_positions=recipe.corpus.sequence_length, use_cache=False)
    )


def pad_on_the_right(tokenizer: PreTrainedTokenizerBase) -> DataCollatorForLanguageModeling:
    """Build the collator of GPT-2, which counts positions from the left."""
    tokenizer.padding_side = "right"
    return DataCollatorForLanguageModeling(tokenizer, mlm=False)


@dataclass(frozen=True)
class Sample:
    """Some of an epoch's examples; `Examples`, and the same in every epoch."""

    examples: Examples
    chosen: np.ndarray
    """Their numbers."""

    @property
    def lengths(self) -> np.ndarray:
        """Count the tokens of each."""
        return np.asarray(self.examples.lengths)[self.chosen]

    def epoch(self, number: int) -> Examples:
        """Return the sample itself."""
        return self

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.chosen)

    def __getitem__(self, index: int) -> Example:
        """Make one of them."""
        return self.examples[int(self.chosen[index])]


def held_out_sample(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> Sample:
    """Draw `HELD_OUT` sequences of the validation text, or take all if there are fewer."""
    corpus = tokenize(recipe, open_text(recipe, "validation"), tokenizer)
    examples = examples_of(recipe, corpus, tokenizer, recipe.corpus.sequence_length).epoch(0)
    size = min(HELD_OUT, len(examples))
    return Sample(examples, np.sort(np.random.default_rng(0).choice(len(examples), size, replace=False)))


CONTESTS: dict[str, Contest] = {
    contest.name: contest
    for contest in (
        Contest(  # BERT (Devlin et al., 2019, appendix A.2) against our encoder
            "encoder",
            "encoder-fast",
            build_bert,
            partial(DataCollatorForLanguageModeling, mlm_probability=0.15),
            MaskedLanguageModelingRecipe("masked_language_modeling"),
            batch_size=32,
            rates=(1e-4, 5e-4, 1e-3),
            schedule="linear",
            betas=(0.9, 0.999),
            weight_decay=0.01,
        ),
        Contest(  # GPT-2, with the rates of its reimplementations (nanoGPT), against our decoder
            "decoder",
            "decoder-fast",
            build_gpt2,
            pad_on_the_right,
            CausalLanguageModelingRecipe("causal_language_modeling"),
            batch_size=16,
            rates=(6e-4, 1.2e-3, 2.4e-3),
            schedule="cosine",
            betas=(0.9, 0.95),
            weight_decay=0.1,
        ),
    )
}
"""The races, by name."""
