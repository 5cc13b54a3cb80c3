"""Generate side by side with GPT-2: tokens per second, their ratio, and whether texts are the same.

    stock          transformers as shipped, float32
    stock-bf16     its model in bfloat16, freed memory kept
    tercet         ours as shipped, float32
    tercet-bf16    our model in bfloat16, freed memory kept

The models have equal weights, and all call `generate` with the same arguments, greedily, behind random
prompts. Nothing ends a text early, so that all write equally much.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..publishing import Result, spread
from .benchmark import Benchmark, side_by_side
from .cases import BASE, SEED, DecoderCase, copy_weights
from .sides import Pass, Side

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

    def models(self) -> dict[str, Any]:
        """Build the stock model and ours, equal and in float32."""
        torch.manual_seed(SEED)
        stock, ours = self.stock().eval(), self.tercet().eval()
        with torch.no_grad():
            for parameter in stock.get_submodule("transformer.h").parameters():
                parameter *= LIVELINESS if parameter.dim() == 2 else 1
        copy_weights(stock, ours)
        return {"stock": stock, "tercet": ours}


def write(model: Any, case: WritingCase) -> Pass:
    """Return what generates behind all prompts: the new tokens, (B, T)."""
    new, prompts = case.num_new_tokens, case.prompts().to(model.device)
    settings = {"do_sample": False, "cache_implementation": case.cache, "eos_token_id": None}
    return lambda: model.generate(prompts, max_new_tokens=new, pad_token_id=0, **settings)[:, -new:]


Use = Callable[[Any, Any], Pass]
"""Makes what a model is to do of the model and a case."""


def reading(whose: str, use: Use, dtype: torch.dtype, products: Any = nullcontext) -> Side:
    """Make a side that uses the stock model or ours; those in bfloat16 keep freed memory as well."""
    is_narrow = dtype == torch.bfloat16
    prepare = partial(prepare_reader, whose=whose, use=use, dtype=dtype)
    return Side(prepare, "bf16" if is_narrow else "fp32", is_narrow, products)


def prepare_reader(case: WritingCase, device: torch.device, *, whose: str, use: Use, dtype: Any) -> Pass:
    return use(case.models()[whose].to(device, dtype), case)


WRITERS = {
    f"{whose}{suffix}": reading(whose, write, dtype)
    for whose in ("stock", "tercet")
    for suffix, dtype in (("", torch.float32), ("-bf16", torch.bfloat16))
}
"""The sides, by name, in the order of a round."""

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


def compare_texts(case: WritingCase) -> Result:
    """Generate on all sides; return the share of tokens in common with `stock`.

    Also return how varied the stock model's texts are: its different tokens in a text, on average.
    """
    texts = {name: side.prepare(case, torch.device("cpu"))() for name, side in WRITERS.items()}
    return {
        "num_new_tokens": case.num_new_tokens,
        "different_tokens": sum(len(text.unique()) for text in texts["stock"]) / case.batch_size,
        "same_tokens": {
            name: (text == texts["stock"]).double().mean().item() for name, text in texts.items()
        },
    }


def varieties(result: Result) -> list[str]:
    """Describe how varied the texts are, and whether ours are the stock model's."""
    texts = [case["parity"] for case in result["cases"].values()]
    fewest = min(each["different_tokens"] for each in texts)
    same = min(each["same_tokens"]["tercet"] for each in texts)
    return [
        f"Texts of {texts[0]['num_new_tokens']} tokens have {fewest:.0f} different ones or more; in float32, "
        f"at least {same:.0%} of our tokens are the stock model's."
    ]


BENCHMARK = Benchmark(
    __doc__,
    WRITING_CASES,
    side_by_side(
        WRITERS,
        compare_texts,
        lambda case: case.num_new_tokens * case.batch_size,
        {"stock": ("stock",), "stock-bf16": ("stock-bf16",)},
    ),
    {
        "layers x width": "{case}",
        "stock, tokens/s": "{stock[tokens_per_second]:,.0f}",
        "stock-bf16": spread("stock-bf16", "tokens_per_second"),
        "tercet": "{tercet[tokens_per_second]:,.0f}",
        "tercet-bf16": spread("tercet-bf16", "tokens_per_second"),
        "over stock-bf16": "{tercet-bf16[ratio_to_stock-bf16]:.2f}x",
        "over stock": "{tercet-bf16[ratio_to_stock]:.2f}x",
    },
    has_row_per_case=True,
    facts=varieties,
)
