"""Models on several processes: whole copies kept equal (DDP), or a model shared out in pieces (FSDP2, HSDP).

Of a model in pieces (Zhao et al., 2023, "PyTorch FSDP"; torch's `fully_shard`), each process holds a part of
every weight, of its gradient and of the optimizer's state. A block's weights are gathered for as long as it
computes; what lies outside the blocks (embeddings, final norm, heads) stays gathered from the forward to the
end of the backward pass, because the loss reads the head's weight without calling the head. Modules that say
`stays_whole` are held whole by every process; their weights do not learn.

Groups of processes may hold one model each (HSDP): replicas of a model in pieces. Gradients are summed within
a group in every micro-batch, and over the groups once in a step.

Which of them, accelerate's user says (`accelerate launch --use_fsdp --fsdp_version 2`, and the sizes of
`ParallelismConfig`). It is carried out here: without a GPU accelerate forgets the request, and its versions
differ in what they gather at once.

A finished model is whole: one process would write the same. So are a checkpoint's weights; the optimizer's
state is written in pieces (`training/checkpoints/pieces.py`), and fits any other layout.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin, parse_flag_from_env
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ...data.steps.batches import Step
from ...data.steps.exchange import Timeout
from ...data.steps.objective import Objective
from ..evaluation import undisturbed_randomness

PRECISIONS = {"no": None, "bf16": torch.bfloat16}
"""What gathered weights are rounded to, under accelerate's names for mixed precision."""

PARALLELISM = "ACCELERATE_USE_PARALLELISM_CONFIG"
"""The variable that says whether accelerate's user has chosen sizes of groups; see `size_of`."""


def prepare_model(model: nn.Module, accelerator: Accelerator, *, cpu_offload: bool = False) -> nn.Module:
    """Bring a model to the accelerator's device and its processes, as copies or in pieces.

    In pieces, bfloat16 means that weights are rounded as they are gathered, and the vectors between the
    layers with them; gradients are summed in float32. Copies round inside each product (autocast), as one
    process does.

    Args:
        model: Whole, on any device.
        cpu_offload: Whether the CPU keeps weights, gradients and the optimizer's state of pieces.
    """
    plugin = sharding_plugin(accelerator)
    if plugin is None:
        return accelerator.prepare(model)
    offloads = cpu_offload or isinstance(plugin.cpu_offload, CPUOffloadPolicy)
    is_cpu = accelerator.device.type == "cpu"
    arguments: dict[str, Any] = {
        "mesh": mesh_of_pieces(accelerator, exchanges_on_cpu=offloads and not is_cpu),
        "offload_policy": CPUOffloadPolicy(pin_memory=not is_cpu) if offloads else OffloadPolicy(),
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=PRECISIONS[accelerator.mixed_precision],
            reduce_dtype=torch.float32,
            cast_forward_inputs=False,  # rotations stay in float32
        ),
    }
    for part in whole_parts(model):
        part.to(accelerator.device)
        arguments.setdefault("ignored_params", set()).update(part.parameters())
    for block in blocks_of(model):
        fully_shard(block, reshard_after_forward=bool(plugin.reshard_after_forward), **arguments)
    fully_shard(model, reshard_after_forward=False, **arguments)
    return model


def sharding_plugin(accelerator: Accelerator) -> FullyShardedDataParallelPlugin | None:
    """Return how accelerate is to share models out; `None` if processes hold copies."""
    if not (parse_flag_from_env("ACCELERATE_USE_FSDP") and torch.distributed.is_initialized()):
        return None
    plugin = getattr(accelerator.state, "fsdp_plugin", None) or FullyShardedDataParallelPlugin()
    if plugin.fsdp_version != 2:
        raise ValueError(f"fsdp_version is {plugin.fsdp_version}: choose --fsdp_version 2")
    unsupported = {
        "precision fp16": accelerator.mixed_precision == "fp16",
        "fsdp_activation_checkpointing_offload": getattr(plugin, "activation_checkpointing_offload", False),
        "fsdp_ignored_modules": plugin.ignored_modules is not None,
    }
    if asked := [name for name, is_asked in unsupported.items() if is_asked]:
        raise ValueError(f"{' and '.join(asked)} is not supported with FSDP: leave it out")
    return plugin


def computes_again(is_wanted: bool, accelerator: Accelerator) -> bool:
    """Return whether gradients are checkpointed: a recipe says it, or `fsdp_activation_checkpointing`."""
    plugin = sharding_plugin(accelerator)
    return is_wanted or (plugin is not None and bool(plugin.activation_checkpointing))


def require_pieces(cpu_offload: bool, accelerator: Accelerator) -> None:
    """Check that a layout can be had, and that weights that are to rest on the CPU are shared out."""
    if sharding_plugin(accelerator) is None and cpu_offload:
        raise ValueError(
            "training.cpu_offload = true, but every process holds the whole model: shard it by FSDP2 "
            "(accelerate launch --use_fsdp --fsdp_version 2, or torchrun with ACCELERATE_USE_FSDP=true "
            "FSDP_VERSION=2), or leave cpu_offload out"
        )


def count_replicas(num_processes: int) -> int:
    """Count the groups of processes of which each holds a whole model in pieces: several with HSDP."""
    if not parse_flag_from_env(PARALLELISM):
        return 1
    for kind, name in (("TP", "tensor"), ("CP", "context"), ("SP", "sequence")):
        if size_of(kind) > 1:
            raise ValueError(
                f"{size_variable(kind)} is {size_of(kind)}, but there is no {name} parallelism here, which "
                "models below a billion parameters do not need: leave it out, and share the model out by "
                "dp_shard_size"
            )
    replicas, shards = size_of("DP_REPLICATE"), size_of("DP_SHARD")
    if replicas * shards != num_processes:
        raise ValueError(
            f"dp_replicate_size {replicas} x dp_shard_size {shards} are {replicas * shards} processes, but "
            f"there are {num_processes}: choose sizes whose product is the number of processes"
        )
    if num_processes > 1 and (shards == 1 or not parse_flag_from_env("ACCELERATE_USE_FSDP")):
        raise ValueError(
            f"{PARALLELISM} is set, but nothing is shared out (dp_shard_size is {shards}): choose at least "
            "2, with --use_fsdp --fsdp_version 2; for whole copies (DDP) leave all of these out"
        )
    return replicas


def size_variable(kind: str) -> str:
    """Name the variable in which `accelerate launch` writes the size of a kind of group."""
    return f"PARALLELISM_CONFIG_{kind}_SIZE"


def size_of(kind: str) -> int:
    """Read the size of a kind of group, 1 if it was not chosen; what is no number is a `ValueError`."""
    value = os.environ.get(size_variable(kind), "1")
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(f"{size_variable(kind)} is {value!r}: choose a number of processes, 1 or more")
    return int(value)


def processes_of(accelerator: Accelerator) -> DeviceMesh:
    """Return all processes, as DTensors name them."""
    return init_device_mesh(accelerator.device.type, (accelerator.num_processes,))


def mesh_of_pieces(accelerator: Accelerator, *, exchanges_on_cpu: bool = False) -> DeviceMesh:
    """Return the processes that share models out: all in one group, or replicas x processes of a replica.

    Args:
        exchanges_on_cpu: Whether they also exchange tensors that lie on the CPU, beside their devices.
    """
    replicas, kind = count_replicas(accelerator.num_processes), accelerator.device.type
    if replicas == 1 and not exchanges_on_cpu:
        return processes_of(accelerator)
    device_backend = torch.distributed.get_default_backend_for_device(kind)
    backend = f"{kind}:{device_backend},cpu:gloo" if exchanges_on_cpu else None
    return _grid(kind, accelerator.num_processes, replicas, backend)


@cache
def _grid(kind: str, num_processes: int, replicas: int, backend: str | None) -> DeviceMesh:
    # torch's `init_device_mesh` would give these groups the backend's own timeout.
    group = partial(torch.distributed.new_subgroups_by_enumeration, timeout=Timeout.value, backend=backend)
    ranks = torch.arange(num_processes).view(replicas, -1)
    groups: list[Any] = [group(members.tolist())[0] for members in (ranks.T, ranks)]
    mesh = DeviceMesh.from_group(groups, kind, ranks, mesh_dim_names=("dp_replicate", "dp_shard"))
    return mesh if replicas > 1 else mesh["dp_shard"]


def group_of_pieces(tensor: DTensor) -> DeviceMesh:
    """Return the processes that hold a tensor together, each its rows: of replicas, this process's own."""
    mesh = tensor.device_mesh
    return mesh if mesh.ndim == 1 else mesh["dp_shard"]


def exchange_among_replicas(model: nn.Module, objective: Objective, *, is_last: bool) -> None:
    """Let replicas of a model in pieces sum their gradients in the step's last micro-batch, not before it.

    Where that may not reach all parameters, they sum in each: those of others would be left out.
    """
    if isinstance(model, FSDPModule):
        model.set_requires_all_reduce(is_last or not objective.uses_all_parameters)


def settle(model: nn.Module, objective: Objective, step: Step, accelerator: Accelerator) -> None:
    """Let copies fix the order in which they sum gradients, by a backward pass that is thrown away.

    DDP chooses it anew after its first backward pass. Were that one of the training's, a resumed run of three
    processes or more would sum in another order than one that never stopped.
    """
    if not isinstance(model, DistributedDataParallel):
        return
    with undisturbed_randomness(accelerator.device):
        losses = objective.losses(model, step.micro_batches(accelerator.device)[0])
        loss = torch.stack(list(losses.values())).sum()
        accelerator.backward(loss if objective.uses_all_parameters else loss + no_gradient(model))
    model.zero_grad()


def no_gradient(model: nn.Module) -> Tensor:
    """Return a zero that has a gradient of zero for every trainable parameter.

    Processes exchange gradients when the last backward pass has reached every parameter, and the batches of a
    mixture of objectives need not reach all heads.
    """
    return 0.0 * torch.stack([p.sum() for p in model.parameters() if p.requires_grad]).sum()


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """List the modules that transformers' models name as the ones to keep together."""
    names = getattr(model, "_no_split_modules", None) or ()
    return [module for module in model.modules() if type(module).__name__ in names]


def whole_parts(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if getattr(module, "stays_whole", False)]


def is_sharded(model: nn.Module) -> bool:
    return isinstance(model, FSDPModule)


def layout_of(model: nn.Module) -> str:
    """Say in words how processes hold a prepared model."""
    meshes = (weight.device_mesh for weight in model.parameters() if isinstance(weight, DTensor))
    mesh = next(meshes, None)
    if mesh is None:
        return "copied"
    return "in pieces" if mesh.ndim == 1 else f"in pieces, {mesh.size(0)} replicas"


def largest(number: int, model: nn.Module) -> int:
    """Return the largest number of all processes, where they compute together: each pass gathers weights."""
    if not is_sharded(model):
        return number
    shared = torch.tensor(number, device=device_of(next(model.parameters())))
    torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
    return int(shared)


@contextmanager
def gathered(model: nn.Module, accelerator: Accelerator) -> Iterator[None]:
    """Let every process hold all weights for a while, so that it computes without the others.

    Evaluation and generation need this: processes may hold different numbers of batches.
    """
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        plugin = sharding_plugin(accelerator)
        for unit in units:
            assert plugin is not None
            unit.reshard()
            again = unit is not model and bool(plugin.reshard_after_forward)
            unit.set_reshard_after_forward(again, recurse=False)


def device_of(tensor: Tensor) -> torch.device:
    """Return the device that computes with a tensor: not the CPU where pieces only rest on it."""
    return torch.device(tensor.device_mesh.device_type) if isinstance(tensor, DTensor) else tensor.device


def own_part(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor: all of it, unless it is in pieces."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Gather a tensor of which every process holds a part; every process calls this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_weights(model: nn.Module, accelerator: Accelerator) -> dict[str, Tensor]:
    """Return the whole weights by name, to the main process and on the CPU if they are in pieces.

    Tied weights are one tensor under several names. Every process calls this; the others get nothing.
    """
    if not is_sharded(model):
        return model.state_dict() if accelerator.is_main_process else {}
    weights: dict[int, Tensor] = {}
    names: dict[str, int] = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        names[name] = id(weight)
        if id(weight) not in weights:
            weights[id(weight)] = _to_main(weight.detach(), accelerator)
    return {name: weights[key] for name, key in names.items()} if accelerator.is_main_process else {}


def each_once(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Keep of tensors, or pieces, with several names the first name, in alphabetical order."""
    first: dict[int | str, str] = {}
    for name, weight in sorted(weights.items()):
        place = id(weight) if isinstance(weight, DTensor) else weight.data_ptr()
        first.setdefault(place or name, name)  # empty tensors have no place in memory
    return {name: weights[name] for name in first.values()}


def load_whole_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Let a model, or its pieces, take whole weights, in which tied ones may occur once.

    Raises:
        RuntimeError: Names or shapes are not the model's.
    """
    parts = model.state_dict(keep_vars=True)
    missing = {id(part) for part in parts.values()} - {id(parts.get(name)) for name in weights}
    if missing or weights.keys() - parts.keys():
        names = [name for name, part in parts.items() if id(part) in missing]
        raise RuntimeError(f"missing: {names}, unexpected: {sorted(weights.keys() - parts.keys())}")
    with torch.no_grad():
        for name, weight in weights.items():
            if weight.shape != parts[name].shape:
                raise RuntimeError(f"{name} has the shape {tuple(weight.shape)}")
            parts[name].copy_(part_of(weight, parts[name]))


def load_whole_optimizer_state(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Let an optimizer take its parts of a state, some of which may be cut, or sparse, already."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = {
        index: {name: part_of(value, parameters[index]) for name, value in values.items()}
        for index, values in state["state"].items()
    }
    optimizer.load_state_dict(state | {"state": moments})


def part_of(value: Any, parameter: Tensor) -> Any:
    """Cut this process's part out of a whole tensor, as a parameter of as many rows is cut."""
    if isinstance(value, Tensor) and value.is_sparse:
        value = value.to_dense()
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or isinstance(value, DTensor):
        return value
    if value.dim() != parameter.dim() or value.shape[:1] != parameter.shape[:1]:
        return value
    value = value.to(device_of(parameter))
    part = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return part.to(parameter.device)


def _to_main(value: Any, accelerator: Accelerator) -> Any:
    # What is not in pieces stays as it is.
    if not isinstance(value, DTensor):
        return value
    full = whole(value)  # on all processes together
    return full.cpu() if accelerator.is_main_process else None
