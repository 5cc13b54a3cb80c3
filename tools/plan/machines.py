"""The machines that a run is planned for: what devices can do, and the share of it that training reaches.

DEVICES            the makers' numbers               measure_this_machine   a second of products here
PEAK_SHARES        what training reached (MFU)       PlanRecipe             `key=value` beside a recipe's

Wide models spend their time in large matrix products, which come near a device's peak. Narrow ones spend it
between products: on a GPU with starting kernels, in norms and in the optimizer. What other programs reach is
no measure of ours; docs/scaling.md lists some of it.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from math import log
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt

from ...configs.recipe import load_recipe, parse_recipe, read_overrides, split_overrides
from ...pretraining.recipe import PretrainingRecipe
from ...training.devices.precision import computes_on_cpu, fast_bfloat16, fastest_float32_products
from ...training.devices.utilization import measure_peak
from ...training.recipe import TrainingRecipe

Peaks = dict[str, float]
"""Floating-point operations per second by format of the products, without sparsity."""

THIS_MACHINE = "this_machine"
"""Name of the device that is measured."""


@dataclass(frozen=True)
class Device:
    """A kind of device."""

    memory: float
    """Bytes."""
    peaks: Peaks
    """Operations per second in each format that it computes in."""
    node_bandwidth: float
    """Bytes per second to the other devices of a machine, in one direction."""
    network_bandwidth: float
    """Bytes per second and device to other machines, in one direction."""
    source: str
    """Where the numbers come from."""
    type: str = "cuda"
    """What torch calls it."""

    @property
    def is_cpu(self) -> bool:
        """Whether it computes with a CPU's kernels, which keep other tensors for the backward pass."""
        return self.type == "cpu"


def tensor_cores(half: float, single: float) -> Peaks:
    """Name the peaks of a GPU that computes both half formats alike."""
    return {"bf16": half, "fp16": half, "fp32": single}


DEVICES = {
    "a100": Device(
        80e9, tensor_cores(312e12, 19.5e12), 300e9, 25e9, "NVIDIA A100 80GB SXM and DGX A100 data sheets"
    ),
    "h100": Device(
        80e9, tensor_cores(989e12, 67e12), 450e9, 50e9, "NVIDIA H100 SXM and DGX H100 data sheets"
    ),
    "h200": Device(
        141e9, tensor_cores(989e12, 67e12), 450e9, 50e9, "NVIDIA H200 SXM and DGX H200 data sheets"
    ),
    "rtx3090": Device(
        24e9,
        tensor_cores(71e12, 35.6e12),
        31.5e9,
        1.25e9,
        "NVIDIA, Ampere GA102 GPU Architecture, 2021, appendix (accumulation in FP32); PCIe 4.0 x16",
    ),
    "rtx4090": Device(
        24e9,
        tensor_cores(165.2e12, 82.6e12),
        31.5e9,
        1.25e9,
        "NVIDIA, Ada GPU Architecture, 2023, appendix A (accumulation in FP32); PCIe 4.0 x16",
    ),
    "rtx5090": Device(
        32e9,
        tensor_cores(209.5e12, 104.8e12),
        63e9,
        1.25e9,
        "NVIDIA, RTX Blackwell GPU Architecture, 2025, appendix A (accumulation in FP32); PCIe 5.0 x16",
    ),
    "cpu": Device(
        16e9,
        {"bf16": 749e9, "fp32": 368e9},
        1.25e9,
        1.25e9,
        "two cores of an AMD EPYC, measured by `make bench`; memory and Ethernet are assumed",
        type="cpu",
    ),
}
"""The devices that a plan can name. Data sheets count both directions of NVLink, and newer ones sparse
products: both are halved here. The network's rate is that of one adapter for each device."""


@dataclass(frozen=True)
class PeakShare:
    """A share of peak that models of some width reach."""

    width: int
    """The models' hidden size."""
    share: float
    """Share of the peak FLOPs in the precision of the products."""
    source: str
    """How it is known."""


ASSUMED = PeakShare(2048, 0.4, "assumed, since nothing of this width or device was measured")

PEAK_SHARES = {
    "cpu": (
        PeakShare(256, 0.43, "measured with an encoder of 4 layers on an AMD EPYC"),
        PeakShare(768, 0.65, "measured with an encoder of 12 layers on an AMD EPYC"),
    ),
    "cuda": (
        PeakShare(256, 0.12, "measured with an encoder of 4 layers on one H100"),
        PeakShare(384, 0.18, "measured with an encoder of 12 layers on one H100"),
        PeakShare(512, 0.24, "measured with 8 layers and NorMuon on one H100"),
        PeakShare(768, 0.33, "measured with BERT-base and GPT-2 on one H100"),
        ASSUMED,
    ),
}
"""Measured shares by type of device, narrow models first; the tables of docs/performance.md and of
docs/scaling.md have the runs."""


def expected_share(device_type: str, width: int) -> tuple[float, tuple[PeakShare, ...]]:
    """Return the share of peak to expect of a model, and the one or two known shares that it rests on.

    Between two widths it is interpolated along the logarithm of the width; outside it is the nearest one.

    >>> share, known = expected_share("cuda", 640)
    >>> round(share, 3), [each.width for each in known]
    (0.29, [512, 768])
    """
    known = PEAK_SHARES.get(device_type, (ASSUMED,))
    share = np.interp(log(width), [log(each.width) for each in known], [each.share for each in known])
    below = [each for each in known if each.width <= width] or known[:1]
    above = [each for each in known if each.width >= width] or known[-1:]
    return float(share), tuple(dict.fromkeys([below[-1], above[0]]))


FORMATS = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
"""Formats of products, with the names that `measure_peak` takes."""

LINK = 1.25e9
"""Bytes per second to other devices, which are not measured: Ethernet of 10 Gbit/s."""


@cache
def measure_this_machine() -> Device:
    """Measure the device that a run would take, in every format that it multiplies by itself."""
    print("measuring this machine ...", file=sys.stderr)
    device = own_device()
    formats = {"fp32": True, "bf16": fast_bfloat16(device) is not None, "fp16": device.type == "cuda"}
    with fastest_float32_products(device):
        peaks = {name: measure_peak(device, FORMATS[name]) for name, known in formats.items() if known}
    source = f"{name_of(device)}, measured just now; links to other devices are assumed"
    return Device(memory_of(device), peaks, LINK, LINK, source, device.type)


def own_device() -> torch.device:
    chosen = None if computes_on_cpu() else torch.accelerator.current_accelerator()
    return chosen or torch.device("cpu")


def name_of(device: torch.device) -> str:
    """Name a device in a sentence."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"{torch.get_num_threads()} threads of this machine's CPU"
    return f"this machine's {device.type} device"


def memory_of(device: torch.device) -> float:
    """Count the bytes that a device has: a GPU's own, or the machine's."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


Amount = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
DeviceName = Annotated[
    str,
    Field(
        json_schema_extra={
            "enum": [THIS_MACHINE, *DEVICES],
            "errorMessage": f"unknown; it is {THIS_MACHINE}, which is measured, or one of "
            f"{', '.join(DEVICES)}. For any other, set peak_flops and device_memory from its data sheet",
        }
    ),
]


@dataclass(frozen=True)
class PlanRecipe:
    """The machines that a run is planned for."""

    devices: PositiveInt = 1
    """Number of devices."""
    device: DeviceName = THIS_MACHINE
    """Type of device, by its name in `DEVICES`, or `this_machine`, which is measured; the fields below
    override its values."""
    devices_per_node: PositiveInt = 8
    """Number of devices in a machine; more devices communicate over the network."""
    mfu: Share | Literal["auto"] = "auto"
    """Share of peak FLOPs that the model reaches (MFU), as a run logs it; `auto`: what was measured with
    models of similar width on similar devices."""
    peak_flops: Amount | None = None
    """Floating-point operations per second of one device in the recipe's precision."""
    device_memory: Amount | None = None
    """Bytes of one device's memory."""
    usable_memory: Share = 0.9
    """Share of the memory that the run may use; the rest is for the device's context, for temporary results
    of single operations, and for fragmentation."""
    bandwidth: Amount | None = None
    """Bytes per second that a device sends to the others; over the network if there are several machines."""
    price_per_device_hour: Amount | None = None
    """Price of one device for an hour, in any currency."""

    @property
    def kind(self) -> Device:
        if self.device == THIS_MACHINE:
            return measure_this_machine()
        return DEVICES[self.device]

    def precision_of(self, training: TrainingRecipe) -> str:
        """Name the format of a run's products: the recipe's, or what it chooses by itself there."""
        chosen = training.precision
        if chosen == "auto":
            return "bf16" if "bf16" in self.kind.peaks else "fp32"
        self.peak(chosen)  # or it does not compute in it
        return chosen

    @property
    def available_memory(self) -> float:
        """Bytes that a run may fill on one device."""
        return (self.device_memory or self.kind.memory) * self.usable_memory

    @property
    def link(self) -> float:
        """Bytes per second that a device sends to the others."""
        is_one_node = self.devices <= self.devices_per_node
        return self.bandwidth or (self.kind.node_bandwidth if is_one_node else self.kind.network_bandwidth)

    def share_of_peak(self, width: int) -> tuple[float, tuple[PeakShare, ...]]:
        """Return the share of peak of a model of some width, and what it rests on, if it was not given."""
        return expected_share(self.kind.type, width) if self.mfu == "auto" else (self.mfu, ())

    def peak(self, precision: str) -> float:
        """Return the operations per second of one device in a format of products."""
        if precision not in self.kind.peaks:
            raise ValueError(
                f"training.precision is {precision}, but device {self.device} computes in "
                f"{' and '.join(self.kind.peaks)} only: choose one of them, or another device"
            )
        return self.peak_flops or self.kind.peaks[precision]


def read_machines(overrides: Iterable[str]) -> PlanRecipe:
    """Read the description of machines."""
    try:
        return parse_recipe(PlanRecipe, read_overrides(overrides))
    except ValueError as error:
        raise ValueError(f"plan: {error}") from None


def load_plan(source: str | Path, overrides: Iterable[str] = ()) -> tuple[PretrainingRecipe, PlanRecipe]:
    """Read a recipe, and from the overrides what replaces its values and what describes the machines.

    Args:
        source: Path of a YAML file, or the name of a shipped recipe.
        overrides: `devices=64` and its like describe the machines; keys with a dot, and those that a recipe
            begins with, replace the recipe's values.
    """
    of_recipe, of_machines = split_overrides(overrides, {field.name for field in fields(PretrainingRecipe)})
    return load_recipe(PretrainingRecipe, source, of_recipe), read_machines(of_machines)
