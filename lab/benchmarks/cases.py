"""What is measured: shapes of model and batch; the stock model, ours with equal parameters, and their data.

The texts are random: ranks of words follow Zipf's law, and lengths are those of texts cut at a limit: one
fifth has full length, the others any length below, so that about 58 % of a padded batch is text. Only the
decoder's are full blocks, as they come out of packing.

Legend: S sequences of a case, T tokens of the longest sequence, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerFast

import tercet  # noqa: F401  registers the models
from tercet.configs.recipe import load_preset
from tercet.data.steps.objective import INDEX, Batch, Example, Objective
from tercet.data.steps.packing import select_sequences, sequence_lengths
from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.stock.architectures import ARCHITECTURES
from tercet.modeling.stock.models import fill, links_between
from tercet.pretraining.objectives.causal_language_modeling import CausalLanguageModeling
from tercet.pretraining.objectives.masked_language_modeling import MaskedLanguageModeling
from tercet.pretraining.objectives.masked_pairs import MaskedLanguageModelingWithPairs
from tercet.pretraining.objectives.masking import Corruption, DynamicMasking
from tercet.pretraining.objectives.translation import Translation

SEED = 0
"""Of the data; weights and dropout are seeded where models are built."""

SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
"""The ids 0 to 4 of the encoder's vocabulary; the other models keep off them as well."""

SHARE_FULL, LONGEST_OF_OTHERS, SHORTEST = 0.2, 0.9, 5
"""How many sequences have full length, and between which bounds the others' lengths lie evenly."""


def random_lengths(longest: int, number: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the lengths of texts that are cut at `longest`: (number,)."""
    others = rng.integers(SHORTEST, round(LONGEST_OF_OTHERS * longest) + 1, size=number)
    return np.where(rng.random(number) < SHARE_FULL, longest, others)


TINY: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
"""Sizes of a case that is only to show that everything runs."""


@dataclass(frozen=True)
class Case(ABC):
    """One shape, measured on all sides. Abstract."""

    name: str
    vocab_size: int
    sequence_length: int
    """Tokens of the longest sequences, T."""
    batch_size: int
    """Sequences of an optimizer step."""
    num_batches: int = 4
    """Optimizer steps of a round."""
    hidden_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    dropout: float = 0.1
    """Every dropout that the stock model has."""
    optimizer: str = "adamw"
    """Ours, as a recipe names it."""

    preset: ClassVar[str]
    """The preset of ours."""
    model_class: ClassVar[type[PreTrainedModel]]
    """Ours."""
    architecture: ClassVar[str]
    """The stock architecture, as transformers names it."""
    stock_preset: ClassVar[str]
    """The preset of ours that is the stock architecture."""
    pad_token_id: ClassVar[int] = 0
    is_full: ClassVar[bool] = False
    """Whether all sequences have full length."""

    @abstractmethod
    def objective(self) -> Any:
        """Build what is learned."""

    @abstractmethod
    def example(self, length: int, rng: np.random.Generator) -> Example:
        """Draw an example with `length` tokens."""

    def lengths(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the lengths (S,)."""
        number = self.batch_size * self.num_batches
        if self.is_full:
            return np.full(number, self.sequence_length)
        return random_lengths(self.sequence_length, number, rng)

    def tercet(self) -> PreTrainedModel:
        """Build ours, with its own random weights."""
        return self.model_class(AutoConfig.for_model(**load_preset(self.preset) | self.fields()))

    def stock(self) -> PreTrainedModel:
        """Build transformers' model, with its own random weights."""
        ours: Any = AutoConfig.for_model(**load_preset(self.stock_preset) | self.stock_fields())
        architecture = ARCHITECTURES[self.architecture, type(ours)]
        counterpart = architecture.counterpart(ours=self.model_class.__name__)
        return getattr(transformers, counterpart.stock)(architecture.stock_config(ours, counterpart))

    def fields(self) -> dict[str, Any]:
        """Return what differs from the preset of ours."""
        return self.sizes() | {"dropout": self.dropout, "attention_dropout": self.dropout}

    def stock_fields(self) -> dict[str, Any]:
        """Return what differs from the preset that is the stock architecture."""
        return self.fields()

    def sizes(self) -> dict[str, Any]:
        """Return the sizes, in transformers' common names."""
        return {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": 4 * self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "max_position_embeddings": self.sequence_length,
        }

    def pool(self) -> Batch:
        """Draw, corrupt and pack all sequences, the same ones whenever asked."""
        return self.objective().collate(self.examples(), SEED)

    def examples(self) -> list[Example]:
        """Draw all examples, the same ones whenever asked."""
        rng = np.random.default_rng(SEED)
        lengths = self.lengths(rng).tolist()
        return [{INDEX: number} | self.example(length, rng) for number, length in enumerate(lengths)]

    def batches(self) -> list[Batch]:
        """Cut the pool into batches as it comes."""
        return self._cut(self.pool(), np.arange(self.batch_size * self.num_batches))

    def grouped_batches(self) -> list[Batch]:
        """Cut the pool into batches of sequences that are about equally long."""
        pool = self.pool()
        return self._cut(pool, np.argsort(sequence_lengths(pool), kind="stable"))

    def words(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """Draw ordinary ids (number,): a word's frequency is inverse to its rank (Zipf, 1949)."""
        ranks = np.exp(rng.random(number) * np.log(self.vocab_size - len(SPECIAL))).astype(np.int64)
        return ranks - 1 + len(SPECIAL)

    def text(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the ids of a text as an encoder reads it, [CLS] A [SEP]."""
        ids = self.words(length, rng)
        ids[0], ids[-1] = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")
        return ids

    def shrunk(self) -> Self:
        """Return the same case so small that it takes no time: to see that everything runs."""
        return replace(self, vocab_size=97, sequence_length=16, batch_size=4, num_batches=2, **TINY)

    def _cut(self, pool: Batch, order: np.ndarray) -> list[Batch]:
        return [select_sequences(pool, chosen) for chosen in np.split(order, self.num_batches)]


def copy_weights(stock: PreTrainedModel, ours: PreTrainedModel) -> None:
    """Copy a stock model's weights into ours; each has all parameters of the other."""
    fill(ours, links_between(stock, ours).to_ours(stock.state_dict()))


class CaseExamples:
    """The examples of a case, the same in every epoch: what a run of the engine learns from."""

    def __init__(self, case: Case):
        self.examples = case.examples()
        streams = ("input_ids", "labels")
        self.lengths = np.array([sum(len(each.get(name, ())) for name in streams) for each in self.examples])

    def epoch(self, number: int) -> Self:
        return self

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]


@dataclass(frozen=True)
class EncoderCase(Case):
    """BERT: masked language modeling with next-sentence prediction of pairs, [CLS] A [SEP] B [SEP]."""

    preset = stock_preset = "bert-base"
    model_class = TercetEncoderForPreTraining
    architecture = "bert"

    def objective(self) -> Objective:
        return MaskedLanguageModelingWithPairs(masked_language_modeling(self.vocab_size), "nsp")

    def example(self, length: int, rng: np.random.Generator) -> Example:
        ids = self.text(length, rng)
        middle = int(rng.integers(2, length - 2))
        ids[middle] = SPECIAL.index("[SEP]")
        return {
            "input_ids": ids,
            "token_type_ids": (np.arange(length) > middle).astype(np.int64),
            "next_sentence_label": int(rng.integers(2)),
        }


def masked_language_modeling(vocab_size: int) -> MaskedLanguageModeling:
    """Build the objective over a vocabulary without text."""
    roles = {token.strip("[]").lower(): token for token in SPECIAL}
    return MaskedLanguageModeling(DynamicMasking(Corruption(without_text(vocab_size, SPECIAL, roles))))


def without_text(
    vocab_size: int, first: Sequence[str], roles: Mapping[str, str], **more: Any
) -> PreTrainedTokenizerFast:
    """Build a tokenizer of words that no text has.

    Args:
        vocab_size: Number of tokens.
        first: The first tokens.
        roles: `pad`, `cls`, ... -> its token; there is one for `unk`.
        more: What else the tokenizer is told.
    """
    tokens = [*first, *(f"word{idx}" for idx in range(len(first), vocab_size))]
    words = WordLevel({token: idx for idx, token in enumerate(tokens)}, unk_token=roles["unk"])
    signs = {f"{role}_token": token for role, token in roles.items()}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), **signs, **more)


@dataclass(frozen=True)
class DecoderCase(Case):
    """GPT-2: causal language modeling on full blocks."""

    preset = stock_preset = "gpt2"
    model_class = TercetDecoderForCausalLM
    architecture = "gpt2"
    is_full = True

    def objective(self) -> Objective:
        return CausalLanguageModeling()

    def fields(self) -> dict[str, Any]:
        last = self.vocab_size - 1
        return super().fields() | {"bos_token_id": last, "eos_token_id": last}

    def example(self, length: int, rng: np.random.Generator) -> Example:
        return {"input_ids": self.words(length, rng)}


@dataclass(frozen=True)
class HybridCase(DecoderCase):
    """Ours as in the recipe hybrid-english, by NorMuon, beside GPT-2 of the same size, by AdamW."""

    preset = "hybrid-mini"
    optimizer: str = "normuon"


@dataclass(frozen=True)
class Seq2SeqCase(Case):
    """BART: an encoder, and a decoder of the same size that writes a target. Nothing is smoothed.

    Both texts end with `</s>`, and a target is up to a fifth longer or shorter than its source.
    """

    preset = stock_preset = "bart-base"
    model_class = TercetSeq2SeqForConditionalGeneration
    architecture = "bart"
    pad_token_id = 1

    def objective(self) -> Objective:
        return Translation(decoder_start_id=2, label_smoothing=0.0)  # `</s>`, as in BART

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"activation_dropout": self.dropout}

    def example(self, length: int, rng: np.random.Generator) -> Example:
        of_target = round(length * rng.uniform(0.8, 1.2))
        source = self.words(length, rng)
        target = self.words(min(of_target, self.sequence_length), rng)
        source[-1] = target[-1] = 2
        return {"input_ids": source, "labels": target}


@dataclass(frozen=True)
class BigBirdCase(Case):
    """BigBird learns masked tokens of full texts.

    A block of ours attends to a window of three blocks, two global ones and four drawn ones; one of the stock
    model to three drawn ones.
    """

    preset = stock_preset = "bert-base"
    model_class = TercetEncoderForMaskedLM
    architecture = "big_bird"
    is_full = True
    block_size: int = 64

    def objective(self) -> Objective:
        return masked_language_modeling(self.vocab_size)

    def example(self, length: int, rng: np.random.Generator) -> Example:
        return {"input_ids": self.text(length, rng)}

    def fields(self) -> dict[str, Any]:
        return super().fields() | {
            "layer_types": ["big_bird_attention"] * self.num_hidden_layers,
            "attention_block_size": self.block_size,
            "attention_global_tokens": 2 * self.block_size,
            "attention_random_blocks": 2,
        }

    def stock_fields(self) -> dict[str, Any]:
        return super().fields() | {
            "layer_types": ["stock_big_bird_attention"] * self.num_hidden_layers,
            "attention_block_size": self.block_size,
            "attention_random_blocks": 3,
            "hidden_act": "gelu_new",
        }

    def shrunk(self) -> "BigBirdCase":
        """Return the same so small that it takes no time, and long enough to be sparse."""
        return replace(super().shrunk(), block_size=8, sequence_length=256, batch_size=1)


BASE: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_batches": 2,
}
"""Sizes of BERT-base and of the smallest GPT-2, in fewer batches, since each takes long."""

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        EncoderCase("encoder", vocab_size=30_522, sequence_length=128, batch_size=32),
        EncoderCase("encoder-small-vocabulary", vocab_size=8192, sequence_length=128, batch_size=32),
        EncoderCase("encoder-long", vocab_size=30_522, sequence_length=512, batch_size=8),
        EncoderCase("encoder-base", vocab_size=30_522, sequence_length=128, batch_size=8, **BASE),
        DecoderCase("decoder", vocab_size=50_257, sequence_length=256, batch_size=8),
        DecoderCase("decoder-base", vocab_size=50_257, sequence_length=256, batch_size=4, **BASE),
        Seq2SeqCase("seq2seq", vocab_size=32_000, sequence_length=64, batch_size=32),
    )
}
"""What is measured, by name."""
