"""What `gpu.py` measures: the work, who does it, and what has to come of it. Dropout is 0 unless named."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from cases import BASE, CASES, SPECIAL, Case, DecoderCase, EncoderCase, masked_language_modeling
from distillation import CASE as DISTILLATION
from distillation import SIDES as DISTILLERS
from distillation import DistillationCase
from generation import WRITERS, WritingCase
from gpu_laws import prepare_laws
from gpu_tasks import FINETUNING, VECTORS, ClassificationCase, VectorsCase
from sides import SIDES, Pass, Side, as_they_are, pad_all, prepare_tercet, stock_pass
from transformers import (
    BigBirdConfig,
    BigBirdForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
)

from tercet.configs.recipe import load_preset
from tercet.data.steps.objective import Example, Objective
from tercet.modeling import TercetEncoderForMaskedLM
from tercet.training.devices.precision import choose_precision


@dataclass(frozen=True)
class HybridCase(DecoderCase):
    """Ours as in the recipe hybrid-english, by NorMuon, beside GPT-2 of the same size, by AdamW."""

    preset = "hybrid-mini"
    optimizer: str = "normuon"


@dataclass(frozen=True)
class MaskedCase(Case):
    """An encoder that learns masked tokens alone. Abstract."""

    model_class = TercetEncoderForMaskedLM

    def objective(self) -> Objective:
        """Build masked language modeling."""
        return masked_language_modeling(self.vocab_size)

    def example(self, length: int, rng: np.random.Generator) -> Example:
        """Draw a text, [CLS] A [SEP]."""
        ids = self.words(length, rng)
        ids[0], ids[-1] = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")
        return {"input_ids": ids}


@dataclass(frozen=True)
class ModernBertCase(MaskedCase):
    """ModernBERT, the only encoder that packed-encoders trains."""

    preset = "modernbert-base"

    def sizes(self) -> dict[str, Any]:
        """Return the sizes, and ids that any vocabulary has."""
        ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        return super().sizes() | ids | {"intermediate_size": self.hidden_size * 3 // 2}

    def fields(self) -> dict[str, Any]:
        """Return what differs from the preset."""
        types = load_preset(self.preset)["layer_types"][: self.num_hidden_layers]
        return super().fields() | {"layer_types": types}

    def stock(self) -> PreTrainedModel:
        """Build ModernBERT with its head."""
        return ModernBertForMaskedLM(ModernBertConfig(**self.sizes(), cls_token_id=1, sep_token_id=2))


@dataclass(frozen=True)
class BigBirdCase(MaskedCase):
    """BigBird: `long_texts.py` explains both patterns."""

    preset = "bert-base"
    block_size: int = 64

    def lengths(self, rng: np.random.Generator) -> np.ndarray:
        """Fill every text."""
        return np.full(self.batch_size * self.num_batches, self.sequence_length)

    def fields(self) -> dict[str, Any]:
        """Return what differs from the preset."""
        return super().fields() | {
            "layer_types": ["big_bird_attention"] * self.num_hidden_layers,
            "attention_block_size": self.block_size,
            "attention_global_tokens": 2 * self.block_size,
            "attention_random_blocks": 2,
        }

    def stock(self) -> PreTrainedModel:
        """Build transformers' BigBird with its head."""
        none: dict[str, Any] = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
        return BigBirdForMaskedLM(BigBirdConfig(**self.sizes(), **none, block_size=self.block_size))

    def shrunk(self) -> "BigBirdCase":
        """Return the same so small that it takes no time, and long enough to be sparse."""
        return replace(super().shrunk(), block_size=8, sequence_length=256, batch_size=1)


def prepare_stock_in_bfloat16(case: Case, device: torch.device) -> Pass:
    """Build the stock model with weights in bfloat16: BigBird's cannot be trained by autocast."""
    with device:
        model = case.stock().bfloat16()
    return stock_pass(model, pad_all(case, case.batches(), device), device, is_autocast=False)


def prepare_packed(case: Case, device: torch.device) -> Pass:
    """Build the stock model, and let packed-encoders replace how it computes, if that is installed."""
    import packed_encoders  # pyright: ignore[reportMissingImports]

    with device:
        model = case.stock()
    packed_encoders.pack(model)
    is_autocast = choose_precision("auto", device) == "bf16"
    return stock_pass(model, pad_all(case, case.grouped_batches(), device), device, is_autocast)


@dataclass(frozen=True)
class Gate:
    """What has to come of a part; where less is better, the goal is below the gate."""

    metric: str
    gate: float
    goal: float

    def verdict(self, value: float | None) -> str:
        """Judge what was measured."""
        if value is None:
            return "not measured"
        sign = 1 if self.goal > self.gate else -1
        reached = [sign * value >= sign * mark for mark in (self.goal, self.gate)]
        return "goal reached" if reached[0] else "met" if reached[1] else "**missed**"


@dataclass(frozen=True)
class Part:
    """One row of the table: work that several sides do."""

    case: Any
    sides: Mapping[str, Side]
    gates: tuple[Gate, ...] = ()
    begins_at_once: bool = True
    """Whether sides are prepared together, and not one after another, for want of memory."""

    def shrunk(self) -> "Part":
        """Return the same with tiny shapes, ours compiled on any device, and the stock model once."""
        compiled = replace(OURS, prepare=partial(prepare_tercet, compiles=True))
        sides = {name: compiled if side is OURS else side for name, side in self.sides.items()}
        if self.case.preset != "bert-base" or self.case.dropout:
            sides.pop("stock-compiled", None)
        layers = 2 if isinstance(self.case, DistillationCase) else 1  # a student has half of them
        small = replace(self.case.shrunk(), num_hidden_layers=layers)
        return replace(self, case=replace(small, sequence_length=max(small.sequence_length, 64)), sides=sides)


def training(case: Case, metric: str, gate: float, goal: float, **more: Side) -> Part:
    """Make the part of a training: a gate of its own, and those that all have."""
    gates = (
        Gate(metric, gate, goal),
        Gate("speed / stock-compiled", 1.3, 2),
        Gate("memory / stock-compiled", 1 / 2, 1 / 3),
        Gate("recompilations", 0, 0),
        Gate("seconds to the first step", 60, 60),
    )
    return Part(case, PEERS | more, gates)


SHARE = "share of peak"

OURS = SIDES["tercet"]

PEERS = {"tercet": OURS, "stock": SIDES["stock-tuned"], "stock-compiled": SIDES["stock-compiled"]}

EIGHT = HybridCase("8x512, V8k, S256, NorMuon", 8192, 256, 256, 4, 512, 8, 8, 0.0)

LAWS = {"laws": Side(prepare_laws, "bf16", retains_heap=True, products=as_they_are)}

IN_HALVES = replace(OURS, prepare=partial(prepare_tercet, tokens_per_micro_batch=65_536))
"""As much memory as `8x512`, and its graphs."""

BIG_BIRD = {
    "tercet": replace(OURS),  # not `OURS`, which a smoke compiles: a CPU has no kernel for that
    "stock": SIDES["stock"],
    "stock-bf16": Side(prepare_stock_in_bfloat16, "bf16", retains_heap=True, products=as_they_are),
}

PACKED = Side(prepare_packed, "auto", retains_heap=True, products=as_they_are)

LONG: dict[str, Any] = BASE | {"dropout": 0.0, "num_batches": 4}

ONE_STEP: dict[str, Any] = LONG | {"num_batches": 1}

DROPPED: dict[str, Any] = LONG | {"dropout": 0.1}
"""As the recipe `bert-base` has it, of attention's weights as well."""

TASK: dict[str, Any] = DROPPED | {"num_batches": 16}

PARTS: dict[str, Part] = {
    **{
        f"laws-{name}": Part(replace(CASES[name], dropout=0.0, num_hidden_layers=2, num_batches=1), LAWS)
        for name in ("encoder", "decoder", "seq2seq")
    },
    "gpt2": training(DecoderCase("GPT-2, S1024", 50_257, 1024, 32, **LONG), SHARE, 0.4, 0.45),
    "bert-512": training(EncoderCase("BERT-base, S512", 30_522, 512, 128, **LONG), SHARE, 0.35, 0.45),
    "8x512": training(EIGHT, "tokens/s", 1.2e6, 1.7e6),
    "8x512-131k": Part(
        replace(EIGHT, name="8x512, 131k tokens a step", batch_size=512),
        {"tercet": IN_HALVES},
        (Gate("optimizer's share of a step", 0.05, 0.05),),
    ),
    "pretrain": Part(replace(EIGHT, name="tercet pretrain"), {}, (Gate("speed / 8x512", 0.95, 0.99),)),
    "big-bird": Part(
        BigBirdCase("big bird, S16384", 30_522, 16_384, 1, **ONE_STEP),
        BIG_BIRD,
        (Gate("speed / stock", 5, 10), Gate("speed / stock-bf16", 5, 10)),
        begins_at_once=False,
    ),
    "generate": Part(
        WritingCase("GPT-2 writes", 50_257, 160, 8, cache="static", **BASE),
        {"tercet": WRITERS["tercet-bf16"], "stock": WRITERS["stock-bf16"]},
        (Gate("speed / stock", 1, 2),),
    ),
    "bert-128": training(EncoderCase("BERT-base, S128", 30_522, 128, 512, **LONG), SHARE, 0.35, 0.45),
    "4x256": training(EncoderCase("4x256, S128", 30_522, 128, 512, dropout=0.0), SHARE, 0.1, 0.2),
    "12x384": training(EncoderCase("12x384, S128", 30_522, 128, 512, 4, 384, 12, 12, 0.0), SHARE, 0.25, 0.35),
    "bert-128-dropout": training(
        EncoderCase("BERT-base, S128, dropout 0.1", 30_522, 128, 512, **DROPPED), SHARE, 0.35, 0.45
    ),
    "modernbert": training(
        ModernBertCase("ModernBERT-base, S512", 50_368, 512, 64, 4, 768, 22, 12, 0.0),
        "speed / packed-encoders", 1, 1.3, **{"packed-encoders": PACKED},
    ),
    "distill": Part(
        replace(DISTILLATION, name="distillation, 12x768 to 6, dropout 0.1", batch_size=128, **DROPPED),
        {"tercet": DISTILLERS["tercet"], "stock": DISTILLERS["stock-bf16"]},
    ),
    "finetune": Part(
        ClassificationCase("BERT-base learns labels, dropout 0.1", 30_522, 128, 32, **TASK), FINETUNING
    ),
    "embed": Part(VectorsCase("BERT-base reads texts", 30_522, 128, 512, **TASK), VECTORS),
}  # fmt: skip
"""What is measured, by name, the most important first. Laws need few layers: all of a kind have one graph."""

SAME_WHEN_TINY = ("8x512-131k", "bert-128", "4x256", "12x384")
"""What differs from `8x512` or `bert-512` in nothing but the shape."""
