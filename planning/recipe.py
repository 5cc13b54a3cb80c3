"""The description of the machines that a plan assumes, as `key=value` pairs beside those of the recipe."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ..configs.recipe import load_recipe, parse_recipe, read_overrides
from ..pretraining.recipe import PretrainingRecipe
from ..training.recipe import Positive

Amount = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Device:
    """A kind of device, by its maker's data sheet."""

    memory: float
    """Bytes."""
    peaks: dict[str, float]
    """Floating-point operations per second by format of the products, without sparsity."""
    node_bandwidth: float
    """Bytes per second to the other devices of a machine, in one direction."""
    network_bandwidth: float
    """Bytes per second and device to other machines, in one direction."""
    source: str
    """Where the numbers come from."""


def tensor_cores(half: float, single: float) -> dict[str, float]:
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
    "cpu": Device(
        16e9,
        {"bf16": 749e9, "fp32": 368e9},
        1.25e9,
        1.25e9,
        "two cores of an AMD EPYC, measured by `make bench`; memory and Ethernet are assumed",
    ),
}
"""The devices that a plan can name. Data sheets count both directions of NVLink, and newer ones sparse
products: both are halved here. The network's rate is that of one adapter for each device."""


@dataclass(frozen=True)
class PlanRecipe:
    """The machines that a run is planned for."""

    devices: Positive = 1
    """Number of devices."""
    device: Literal["a100", "h100", "h200", "cpu"] = "h100"
    """Type of device; the fields below override the values of its data sheet."""
    devices_per_node: Positive = 8
    """Number of devices in a machine; more devices communicate over the network."""
    mfu: Share = 0.4
    """Share of peak FLOPs that the model reaches (MFU): an assumption, until a run has measured it."""
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
        """Look the device up."""
        return DEVICES[self.device]

    @property
    def available_memory(self) -> float:
        """Bytes that a run may fill on one device."""
        return (self.device_memory or self.kind.memory) * self.usable_memory

    @property
    def link(self) -> float:
        """Bytes per second that a device sends to the others."""
        is_one_node = self.devices <= self.devices_per_node
        return self.bandwidth or (self.kind.node_bandwidth if is_one_node else self.kind.network_bandwidth)

    def peak(self, precision: str) -> float:
        """Give the operations per second of one device in a format of products.

        Raises:
            ValueError: The device does not compute in it.
        """
        if precision not in self.kind.peaks:
            raise ValueError(
                f"training.precision is {precision}, but device {self.device} computes in "
                f"{' and '.join(self.kind.peaks)} only: choose one of them, or another device"
            )
        return self.peak_flops or self.kind.peaks[precision]


def load_plan(source: str | Path, overrides: Iterable[str] = ()) -> tuple[PretrainingRecipe, PlanRecipe]:
    """Read a recipe, and from the overrides what replaces its values and what describes the machines.

    Args:
        source: Path of a YAML file, or the name of a shipped recipe.
        overrides: `devices=64` and its like describe the machines; keys with a dot, and those that a recipe
            begins with, replace the recipe's values.

    Raises:
        ValueError: As in `load_recipe`; the same of the plan's values.
    """
    parts = {field.name for field in fields(PretrainingRecipe)}
    of_recipe, of_plan = [], []
    for override in overrides:
        key = override.partition("=")[0].strip()
        (of_recipe if "." in key or key in parts else of_plan).append(override)
    recipe = load_recipe(PretrainingRecipe, source, of_recipe)
    try:
        return recipe, parse_recipe(PlanRecipe, read_overrides(of_plan))
    except ValueError as error:
        raise ValueError(f"plan: {error}") from None
