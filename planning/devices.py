"""What kinds of devices can do, by their makers' numbers."""

from dataclasses import dataclass

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


def apple(cores: int, per_core: float, memory: float, source: str) -> Device:
    """Describe a GPU of Apple's, whose cores are alike within a generation and compute all formats alike."""
    return Device(memory, {"bf16": cores * per_core, "fp32": cores * per_core}, 1.25e9, 1.25e9, source, "mps")


M1_CORE = 2.6e12 / 8
"""Apple's announcement of the M1 (10 November 2020): 2.6 teraflops of eight cores."""

M2_CORE = 3.6e12 / 10
"""Apple's presentation of the M2 (6 June 2022): 3.6 teraflops of ten cores."""

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
    "m1": apple(8, M1_CORE, 16e9, "Apple, announcement of M1, 2020; its largest memory"),
    "m1-max": apple(32, M1_CORE, 64e9, "32 of M1's GPU cores (Apple, 2020 and 2021); its largest memory"),
    "m2": apple(10, M2_CORE, 24e9, "Apple, presentation of M2, 2022; its largest memory"),
    "m2-max": apple(38, M2_CORE, 96e9, "38 of M2's GPU cores (Apple, 2022 and 2023); its largest memory"),
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
products: both are halved here. The network's rate is that of one adapter for each device. Of Apple's newer
chips, the maker publishes no operations per second."""
