"""Forward passes that `torch.compile` or an export writes down, or that `torch.func` transforms."""

import torch
from torch._C._functorch import peek_interpreter_stack


def is_tracing() -> bool:
    """Return whether the forward pass is being compiled, exported or transformed.

    Nothing may then depend on data, and kernels that bring gradients of their own are left out: `vmap` over
    `grad` gives the gradient of each sample, and knows torch's operations alone.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or peek_interpreter_stack() is not None
    )
