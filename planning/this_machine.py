"""The device that a run would take on this machine, measured: a second of matrix products, and its memory."""

import os
from functools import cache

import torch

from ..training.precision import computes_on_cpu, fastest_float32_products, has_bfloat16
from ..training.utilization import measure_peak
from .machines import Device

FORMATS = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
"""Formats of products, with the names that `measure_peak` takes."""

LINK = 1.25e9
"""Bytes per second to other devices, which are not measured: Ethernet of 10 Gbit/s."""


@cache
def measure_this_machine() -> Device:
    """Measure the device that a run would take, in every format that it multiplies by itself."""
    device = own_device()
    formats = {"fp32": True, "bf16": has_bfloat16(device), "fp16": device.type == "cuda"}
    with fastest_float32_products(device):
        peaks = {name: measure_peak(device, FORMATS[name]) for name, known in formats.items() if known}
    source = f"{name_of(device)}, measured just now; links to other devices are assumed"
    return Device(memory_of(device), peaks, LINK, LINK, source, device.type)


def own_device() -> torch.device:
    """Return the device that a run would take."""
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
    """Count the bytes that a device has: a GPU's own, those that Metal may take, or the machine's."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
