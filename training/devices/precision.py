"""Which number format a device computes in, and the fastest float32 products that are still float32."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState, is_initialized
from accelerate.tracking import get_available_trackers
from accelerate.utils import (
    DistributedDataParallelKwargs,
    DynamoBackend,
    GradientAccumulationPlugin,
    TorchDynamoPlugin,
    broadcast_object_list,
    disable_fsdp_ram_efficient_loading,
    parse_flag_from_env,
    patch_environment,
)

from ...data.steps.exchange import Timeout, patient_group
from ...modeling.compatibility import forget_accelerator

if TYPE_CHECKING:
    from ..recipe import TrainingRecipe

Precision = str
"""`fp32`, `bf16` or `fp16`: the format of products; weights stay in float32."""

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""What autocast multiplies in, by precision; in fp32 it is off."""

FLOAT32_ERROR = 1e-5
"""Relative error below which a product was computed in float32: bfloat16 errs by 1e-3, TF32 by 3e-4."""

FAST_ON_CPUS = (
    ("amx_bf16", "", "AMX"),
    ("avx512_bf16", "AMD", "AVX-512 BF16 of AMD"),
    ("bf16", "", "Arm BF16"),
)
"""What torch calls instructions, on processors of which make they are faster than float32's, and their name.

A product of 512 x 512 takes 0.14 of float32's time with AMX, half with AMD's AVX-512 BF16, and 1.8 times as
long with Intel's, where AMX is absent or hidden by a virtual machine. Arm's was not measured.
"""

OTHER_ENGINES = {
    "DeepSpeed": "ACCELERATE_USE_DEEPSPEED",
    "Megatron-LM": "ACCELERATE_USE_MEGATRON_LM",
}
"""What `accelerate launch` may choose -> how it says so: an optimizer and steps of its own."""


def build_accelerator(
    recipe: "TrainingRecipe", folder: Path, *, kept_precision: Precision | None = None
) -> Accelerator:
    """Take hold of this process's device, in the recipe's precision; trackers write below `folder`.

    Several runs may follow each other in one Python process, each in its own precision. Where the recipe
    leaves it open, a run that goes on keeps its `kept_precision`, if the device computes in it.
    """
    from .sharding import PARALLELISM, count_replicas, require_pieces  # an evaluation shares no weights

    for engine, variable in OTHER_ENGINES.items():
        if parse_flag_from_env(variable):
            raise ValueError(f"{variable} is set, but {engine} is not supported: use FSDP2 (--use_fsdp)")
    cpu = computes_on_cpu()
    processes = join_processes(recipe.timeout)
    count_replicas(processes.num_processes)
    device = cast(torch.device, processes.device)
    precision = agreed_precision(recipe.precision, device, kept_precision)
    installed = [tracker.value for tracker in get_available_trackers()]
    for tracker in recipe.trackers:  # accelerate would leave out silently what is not installed
        if tracker not in installed:
            raise ValueError(
                f"trackers: {tracker!r} is not installed: pip install {tracker}, or choose from what is: "
                f"{', '.join(installed) or 'none'}"
            )
    forget_earlier_run(precision)
    with patch_environment(**{PARALLELISM: "false"}):  # without a GPU accelerate would refuse it
        accelerator = Accelerator(
            cpu=cpu,
            mixed_precision="no" if precision == "fp32" else precision,
            log_with=list(recipe.trackers) or None,
            project_dir=folder,
            # Said explicitly, because accelerate would divide every loss by the launcher's number of steps.
            gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
            dynamo_plugin=TorchDynamoPlugin(backend=DynamoBackend.NO),  # blocks are compiled one by one
            kwargs_handlers=[
                DistributedDataParallelKwargs(broadcast_buffers=False, gradient_as_bucket_view=True)
            ],
        )
    require_pieces(recipe.cpu_offload, accelerator)
    return accelerator


def join_processes(timeout: float | None = None) -> PartialState:
    """Meet the processes of a launch, before anything is known of how they compute.

    Every process loads models whole: accelerate's launcher would let all but one leave weights out.

    Args:
        timeout: Seconds after which an exchange fails, `training.timeout`, or half an hour; that of the first
            call holds.
    """
    disable_fsdp_ram_efficient_loading()
    if torch.distributed.is_initialized():
        return PartialState()
    if timeout is not None:
        Timeout.value = timedelta(seconds=timeout)
    # Said explicitly, because without a GPU accelerate would let every process train a model of its own.
    processes = PartialState(cpu=computes_on_cpu(), timeout=Timeout.value)
    if processes.num_processes > 1:
        patient_group()
    return processes


def computes_on_cpu() -> bool:
    """Return whether there is no accelerator, or none that is to be used.

    Apple's has no float64, in which scores are summed.
    """
    has_accelerator = torch.accelerator.is_available() and not torch.backends.mps.is_available()
    return parse_flag_from_env("ACCELERATE_USE_CPU") or not has_accelerator


def forget_earlier_run(precision: Precision) -> None:
    """Let accelerate take another precision than an earlier run's, which it would keep for good."""
    if not is_initialized():
        return
    earlier = AcceleratorState()
    if earlier.num_processes == 1:
        forget_accelerator()
    elif precision_of(earlier) != precision:
        raise ValueError(
            f"precision = {precision}, but these {earlier.num_processes} processes used "
            f"{precision_of(earlier)} before: use one launch for each precision"
        )


def precision_of(accelerator: Accelerator | AcceleratorState) -> Precision:
    return "fp32" if accelerator.mixed_precision == "no" else accelerator.mixed_precision


def agreed_precision(wanted: str, device: torch.device, kept: Precision | None = None) -> Precision:
    """Return the format in which all processes compute: the main one chooses, by its device."""
    precision = choose_precision(wanted, device)
    if wanted == "auto" and kept is not None:
        with suppress(ValueError):  # on another device than before
            precision = choose_precision(kept, device)
    return broadcast_object_list([precision])[0] if PartialState().num_processes > 1 else precision


def choose_precision(wanted: str, device: torch.device) -> Precision:
    """Return the format to compute in; `auto` is bf16 where the device is faster in it, whatever its load."""
    if wanted == "auto":
        return "bf16" if fast_bfloat16(device) else "fp32"
    if wanted == "fp16" and device.type != "cuda":
        raise ValueError(
            f"precision = fp16 on {device.type}: only CUDA devices support it; choose auto, bf16 or fp32"
        )
    return wanted


def products_of_few_digits(accelerator: Accelerator) -> torch.dtype:
    """Return the format of a run's products that need few digits: bfloat16 where a GPU has it.

    On a CPU, it is that of the model's products: a resumed run keeps this, and all processes share it.
    """
    device = accelerator.device
    is_fast = precision_of(accelerator) == "bf16" if device.type == "cpu" else fast_bfloat16(device)
    return torch.bfloat16 if is_fast else torch.float32


def precision_in_words(precision: Precision, device: torch.device) -> str:
    """Name a format and why a run on a device has it.

    >>> precision_in_words("fp16", torch.device("cuda"))
    'fp16 (as chosen)'
    """
    fast = fast_bfloat16(device)
    why = {"bf16": fast, "fp32": None if fast else "bf16 is not faster here"}.get(precision)
    return f"{precision} ({why or 'as chosen'})"


@cache
def fast_bfloat16(device: torch.device) -> str | None:
    """Name what multiplies bfloat16 numbers faster than float32 on a device; `None`: nothing does.

    That is said of no device of Apple's: their cores compute both formats at the same rate.
    """
    if device.type == "cuda":
        return "native on this GPU" if torch.cuda.is_bf16_supported(including_emulation=False) else None
    if device.type != "cpu" or sys.platform == "darwin":
        return None
    has = torch.cpu.get_capabilities()
    maker = str(has.get("cpu_name", ""))
    names = (told for name, of, told in FAST_ON_CPUS if has.get(name) and maker.startswith(of))
    return next(names, None)


def products_in(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Compute the products of models in a format, as a context, where no accelerator has prepared them."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, FORMATS[precision])


@contextmanager
def fastest_float32_products(device: torch.device) -> Iterator[None]:
    """Compute float32 products on a CPU by its fastest library that keeps float32's accuracy.

    torch's precision `medium` lets oneDNN compute them. On CPUs with AVX-512 and without AMX that is true
    float32 and about twice as fast on some makes; elsewhere it may round to bfloat16. So the error is
    measured, once, and the setting kept only if it is float32's; the earlier setting returns at the end.
    Other devices are left alone.
    """
    earlier = torch.get_float32_matmul_precision()
    try:
        if device.type == "cpu":
            torch.set_float32_matmul_precision("medium")
            if not product_error(device) <= FLOAT32_ERROR:  # or is no number
                torch.set_float32_matmul_precision(earlier)
        yield
    finally:
        torch.set_float32_matmul_precision(earlier)


def product_error(device: torch.device) -> float:
    """Measure the relative error (Frobenius) of a float32 product against the same in float64."""
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, 512, 512, generator=generator).to(device)
    exact = left.double() @ right.double()
    batched = torch.bmm(left[None], right[None])[0]  # another route than that of single products
    errors = [(product - exact).norm() / exact.norm() for product in (left @ right, batched)]
    return float(torch.stack(errors).max())
