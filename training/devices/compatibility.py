"""What a run uses of torch and accelerate without its being public: no other module here does.

What models use stands in `modeling/compatibility.py`, which each model's folder contains; what data loading
uses, in `data/steps/loader_compatibility.py`.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from accelerate.state import AcceleratorState
from torch import Tensor
from torch.distributed.tensor import DTensor


def change_each(operation: str, tensors: Sequence[Tensor], *arguments: Any, **options: Any) -> None:
    """Apply an operation in place, such as `lerp_`, to each of some tensors: on a GPU in one call.

    Of `arguments`, lists have an item for each tensor.
    """
    together = getattr(torch, f"_foreach_{operation}", None)
    if together is not None:
        together(tensors, *arguments, **options)
        return
    for number, tensor in enumerate(tensors):
        own = (each[number] if isinstance(each, list | tuple) else each for each in arguments)
        getattr(tensor, operation)(*own, **options)


@contextmanager
def compiler_settings(compiler: Mapping[str, Any], gradients: Mapping[str, Any]) -> Iterator[None]:
    """Change settings of torch's compiler, and of how it makes graphs of gradients, meanwhile.

    A setting that this torch does not have is left out, with a warning.
    """
    from torch import _dynamo  # which takes long to import
    from torch._functorch import config

    with ExitStack() as changed:
        places: Any = (_dynamo.config, compiler), (config, gradients)
        for module, settings in places:
            missing = [name for name in settings if not hasattr(module, name)]
            if missing:
                warnings.warn(
                    f"torch {torch.__version__} has no setting {', '.join(missing)} of its compiler: layers "
                    "may be compiled more often, or not at all",
                    stacklevel=3,
                )
            known = {name: value for name, value in settings.items() if name not in missing}
            changed.enter_context(module.patch(known))
        yield


def first_row(tensor: DTensor) -> int:
    """Return which row of a whole tensor the first of this process's rows is."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return offset[0]


def forget_accelerator() -> None:
    """Let the next `Accelerator` of this process choose its precision anew."""
    AcceleratorState._reset_state()
