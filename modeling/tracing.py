"""Graphs: a forward pass that is written down, by `torch.compile` or for an export, and runs later."""

import torch


def is_tracing() -> bool:
    """Tell whether the forward pass is being compiled or exported, where nothing may depend on data."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
