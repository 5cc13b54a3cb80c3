"""What is generated, and by whom: GPT-2 and ours, with equal weights, greedily, behind random prompts.

    stock          transformers as shipped, float32
    stock-bf16     its model in bfloat16, freed memory kept
    tercet         ours as shipped, float32
    tercet-bf16    our model in bfloat16, freed memory kept

All call `generate` with the same arguments. Nothing ends a text early, so that all write equally much.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from cases import SEED, DecoderCase
from peers import copy_weights
from sides import Pass, Side, as_they_are
from torch import Tensor

SHARE_OF_PROMPT = 5
"""One of so many tokens is given."""

LIVELINESS = 4.0
"""Factor of the random matrices of the layers. Without it a model with a tied head repeats its last word, and
nothing would follow from equal texts."""


@dataclass(frozen=True)
class WritingCase(DecoderCase):
    """Texts of `sequence_length` tokens, a fifth of which is given."""

    dropout: float = 0.0
    cache: str | None = None
    """As `generate` names it; `static` lets transformers compile each step on a GPU."""

    @property
    def num_new_tokens(self) -> int:
        """How many tokens are written behind a prompt."""
        return self.sequence_length - self.sequence_length // SHARE_OF_PROMPT

    def prompts(self) -> Tensor:
        """Draw what is given, (B, T)."""
        length = self.sequence_length - self.num_new_tokens
        words = self.words(self.batch_size * length, np.random.default_rng(SEED))
        return torch.from_numpy(words).view(self.batch_size, length)

    def models(self) -> Mapping[str, Any]:
        """Build the stock model and ours, equal and in float32."""
        torch.manual_seed(SEED)
        stock, ours = self.stock().eval(), self.tercet().eval()
        with torch.no_grad():
            for parameter in stock.get_submodule("transformer.h").parameters():
                parameter *= LIVELINESS if parameter.dim() == 2 else 1
        copy_weights(stock, ours, self.preset)
        return {"stock": stock, "tercet": ours}

    def write(self, model: Any) -> Tensor:
        """Let a model write behind all prompts; what is new, (B, T)."""
        new = self.num_new_tokens
        texts = model.generate(
            self.prompts().to(model.device),
            max_new_tokens=new,
            do_sample=False,
            cache_implementation=self.cache,
            eos_token_id=None,
            pad_token_id=0,
        )
        return texts[:, -new:]


def prepare(case: WritingCase, device: torch.device, *, whose: str, dtype: torch.dtype) -> Pass:
    """Build a model, and let it write once whenever it is called."""
    model = case.models()[whose].to(device, dtype)

    def write_once() -> None:
        case.write(model)

    return write_once


def side(whose: str, dtype: torch.dtype) -> Side:
    """Build a side; who cares for speed chooses bfloat16 and keeps the heap."""
    is_tuned = dtype == torch.bfloat16
    return Side(
        partial(prepare, whose=whose, dtype=dtype), "bf16" if is_tuned else "fp32", is_tuned, as_they_are
    )


WRITERS = {
    "stock": side("stock", torch.float32),
    "stock-bf16": side("stock", torch.bfloat16),
    "tercet": side("tercet", torch.float32),
    "tercet-bf16": side("tercet", torch.bfloat16),
}
"""The sides, by name, in the order of a round."""

BASE: dict[str, Any] = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}

WRITING_CASES = {
    case.name: case
    for case in (
        WritingCase("4x256", 50_257, 160, batch_size=1),
        WritingCase("4x256-batch-8", 50_257, 160, batch_size=8),
        WritingCase("12x768", 50_257, 160, batch_size=1, **BASE),
        WritingCase("12x768-batch-8", 50_257, 160, batch_size=8, **BASE),
    )
}
"""What is generated, by name: layers x width."""


def compare_texts(case: WritingCase) -> dict[str, Any]:
    """Let both models write in both types: the share of tokens that each has in common with `stock`.

    Also how many parameters the models have, and how varied the stock model's texts are: its different tokens
    in a text, on average.
    """
    models, texts = case.models(), {}
    for dtype, suffix in ((torch.float32, ""), (torch.bfloat16, "-bf16")):
        texts |= {f"{whose}{suffix}": case.write(model.to(dtype)) for whose, model in models.items()}
    return {
        "parameters": sum(parameter.numel() for parameter in models["stock"].parameters()),
        "num_new_tokens": case.num_new_tokens,
        "different_tokens": sum(len(text.unique()) for text in texts["stock"]) / case.batch_size,
        "same_tokens": {
            name: (text == texts["stock"]).double().mean().item() for name, text in texts.items()
        },
    }
