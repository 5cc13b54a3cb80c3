"""Generate side by side with GPT-2: tokens per second, their ratio, and whether texts are the same.

    stock          transformers as shipped, float32
    stock-bf16     its model in bfloat16, freed memory kept
    tercet         ours as shipped, float32
    tercet-bf16    our model in bfloat16, freed memory kept

The models have equal weights, and all call `generate` with the same arguments, greedily, behind random
prompts. Nothing ends a text early, so that all write equally much.
"""

import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from benchmark import Benchmark
from cases import BASE, SEED, DecoderCase, copy_weights
from measuring import Conditions, in_fresh_process, measure
from publishing import Result, spread, summarize
from sides import Pass, Side
from torch import Tensor

SHARE_OF_PROMPT = 5
"""One of so many tokens is given."""

LIVELINESS = 4.0
"""Factor of the random matrices of the layers. Without it a model with a tied head repeats its last word, and
nothing would follow from equal texts."""

PEERS = {"stock": ("stock",), "stock-bf16": ("stock-bf16",)}


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
        copy_weights(stock, ours)
        return {"stock": stock, "tercet": ours}

    def write(self, model: Any) -> Tensor:
        """Generate behind all prompts; return the new tokens, (B, T)."""
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
    """Build a model; return what writes all texts once."""
    return partial(case.write, case.models()[whose].to(device, dtype))


WRITERS = {
    f"{whose}{suffix}": Side(partial(prepare, whose=whose, dtype=dtype), precision, bool(suffix))
    for whose in ("stock", "tercet")
    for suffix, dtype, precision in (("", torch.float32, "fp32"), ("-bf16", torch.bfloat16, "bf16"))
}
"""The sides, by name, in the order of a round; those in bfloat16 keep freed memory as well."""

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


def measure_case(case: WritingCase, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Compare the texts, time all sides, and relate them to each other and to the reading of weights."""
    texts = in_fresh_process(conditions, compare_texts, case)
    sides = measure(case, WRITERS, conditions, options.rounds)
    describe_sides(sides, case, texts)
    return {"case": asdict(case), "texts": texts, "sides": sides}


def describe_sides(sides: Mapping[str, dict[str, Any]], case: WritingCase, texts: Mapping[str, Any]) -> None:
    """Add to each side's `seconds` its speed, its ratio to the stock sides, and how fast it reads weights."""
    summarize(sides, case.num_new_tokens * case.batch_size, "tokens_per_second", PEERS)
    for name, side in sides.items():
        precision = WRITERS[name].precision
        weight_bytes = texts["parameters"] * (2 if precision == "bf16" else 4)
        steps = side["tokens_per_second"] / case.batch_size
        side |= {"precision": precision, "gigabytes_per_second": steps * weight_bytes / 1e9}
        side["same_tokens"] = texts["same_tokens"][name]


def compare_texts(case: WritingCase) -> dict[str, Any]:
    """Generate with both models in both types; return the share of tokens in common with `stock`.

    Also return how many parameters the models have, and how varied the stock model's texts are: its different
    tokens in a text, on average.
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


def measure_bandwidth() -> float:
    """Read 256 MiB some times: bytes per second, at best."""
    numbers = torch.ones(2**26)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        numbers.sum()
        seconds.append(time.perf_counter() - start)
    return numbers.nbytes / min(seconds)


def varieties(result: Result) -> list[str]:
    """Describe how varied the texts are, and whether ours are the stock model's."""
    texts = [case["texts"] for case in result["cases"].values()]
    fewest = min(each["different_tokens"] for each in texts)
    same = min(each["same_tokens"]["tercet"] for each in texts)
    return [
        f"Texts of {texts[0]['num_new_tokens']} tokens have {fewest:.0f} different ones or more; in float32, "
        f"at least {same:.0%} of our tokens are the stock model's."
    ]


BENCHMARK = Benchmark(
    WRITING_CASES,
    measure_case,
    {
        "layers x width": "{case}",
        "stock, tokens/s": "{stock[tokens_per_second]:,.0f}",
        "stock-bf16": spread("stock-bf16", "tokens_per_second"),
        "tercet": "{tercet[tokens_per_second]:,.0f}",
        "tercet-bf16": spread("tercet-bf16", "tokens_per_second"),
        "over stock-bf16": "{tercet-bf16[ratio_to_stock-bf16]:.2f}x",
        "over stock": "{tercet-bf16[ratio_to_stock]:.2f}x",
        "weights, GB/s": "{tercet-bf16[gigabytes_per_second]:.1f}",
    },
    has_row_per_case=True,
    alignment="lr",
    begin=lambda conditions, is_smoke: {"bandwidth": in_fresh_process(conditions, measure_bandwidth)},
    remarks=lambda result: [f"memory is read at {result['bandwidth'] / 1e9:.0f} GB/s"],
    facts=varieties,
)
