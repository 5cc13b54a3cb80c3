"""The description of the machines that a plan assumes, as `key=value` pairs beside those of the recipe."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ..configs.recipe import parse_recipe, read_overrides
from ..training.recipe import Positive
from .machines import DEVICES, THIS_MACHINE, Device, PeakShare, expected_share

Amount = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class PlanRecipe:
    """The machines that a run is planned for."""

    devices: Positive = 1
    """Number of devices."""
    device: str = THIS_MACHINE
    """Type of device, by its name in `DEVICES`, or `this_machine`, which is measured; the fields below
    override its values."""
    devices_per_node: Positive = 8
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

    def __post_init__(self):
        if self.device not in {THIS_MACHINE, *DEVICES}:
            raise ValueError(
                f"device = {self.device}: unknown; it is {THIS_MACHINE}, which is measured, or one of "
                f"{', '.join(DEVICES)}. For any other, set peak_flops and device_memory from its data sheet"
            )

    @property
    def kind(self) -> Device:
        """Look the device up, or measure it."""
        if self.device == THIS_MACHINE:
            from .machines import measure_this_machine

            return measure_this_machine()
        return DEVICES[self.device]

    @property
    def automatic_precision(self) -> str:
        """Name the format of products that a run chooses by itself there."""
        return "bf16" if "bf16" in self.kind.peaks else "fp32"

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
        """Give the share of peak of a model of some width, and what it rests on: nothing if it was given."""
        return expected_share(self.kind.type, width) if self.mfu == "auto" else (self.mfu, ())

    def peak(self, precision: str) -> float:
        """Return the operations per second of one device in a format of products.

        Raises:
            ValueError: The device does not compute in it.
        """
        if precision not in self.kind.peaks:
            raise ValueError(
                f"training.precision is {precision}, but device {self.device} computes in "
                f"{' and '.join(self.kind.peaks)} only: choose one of them, or another device"
            )
        return self.peak_flops or self.kind.peaks[precision]


def split_overrides(overrides: Iterable[str], parts: Container[str]) -> tuple[list[str], list[str]]:
    """Tell a recipe's overrides from those of the machines: they have a dot, or name a part of recipes."""
    of_recipe: list[str] = []
    of_machines: list[str] = []
    for override in overrides:
        key = override.partition("=")[0].strip()
        (of_recipe if "." in key or key in parts else of_machines).append(override)
    return of_recipe, of_machines


def read_machines(overrides: Iterable[str]) -> PlanRecipe:
    """Read the description of machines.

    Raises:
        ValueError: A key or a device is unknown, or a value impossible.
    """
    try:
        return parse_recipe(PlanRecipe, read_overrides(overrides))
    except ValueError as error:
        raise ValueError(f"plan: {error}") from None
