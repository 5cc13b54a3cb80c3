"""Tensors of which every process holds a part, written and read by torch's distributed checkpoint (DCP).

    optimizer/shard-00001-model-00001-of-00001.safetensors   what process 0 holds of every tensor
    optimizer/shard-00002-model-00001-of-00001.safetensors   the same of process 1, ...

Each process writes what it holds, and none ever holds the whole. DCP notes in every file where its parts
belong (Hugging Face's format), so that processes of any number and layout read the parts that they need.
Where one file is wanted, as of a checkpoint's weights, each process writes its rows to their place in it
(DCP's own joining reads all again on the main process, and knows no integers). Unlike DCP's own format, whose
index is a pickle, neither can run code.
"""

import json
import os
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor import empty as empty_pieces

from ...modeling.compatibility import first_row


def write_pieces(folder: Path, tensors: Mapping[str, Tensor], group: ProcessGroup | None) -> None:
    """Write tensors into a folder, each process what it holds; every process calls this.

    Args:
        tensors: On the CPU. What is whole is written once.

    Raises:
        OSError: What kept one of the processes from writing, to all of them.
    """
    _save(HuggingFaceStorageWriter(str(folder), save_distributed=True), tensors, group)


def write_joined(path: Path, tensors: Mapping[str, Tensor], group: ProcessGroup | None) -> None:
    """Write tensors as one safetensors file, each process the rows that it holds; as `write_pieces`.

    The file begins with the length of its header, and the header, which says where each tensor lies.
    """
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].element_size()):  # aligned
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": type_name(tensor.dtype),
            "shape": [*tensor.shape],
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    start, is_first = 8 + len(text), torch.distributed.get_rank(group) == 0

    def begin_file() -> None:
        if is_first:
            with path.open("wb") as file:
                file.write(len(text).to_bytes(8, "little") + text)
                file.truncate(start + end)

    def write_rows() -> None:
        with path.open("r+b") as file:
            for name, tensor in tensors.items():
                own, before = own_rows(tensor, is_first=is_first)
                file.seek(start + header[name]["data_offsets"][0] + before)
                file.write(own.cpu().reshape(-1).view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())

    for work in (begin_file, write_rows):
        _do_together(work, group)


@cache
def type_name(dtype: torch.dtype) -> str:
    """Return what safetensors call a type: they are asked for the header of an empty tensor."""
    file = safetensors.torch.save({"empty": torch.empty(0, dtype=dtype)})
    length = int.from_bytes(file[:8], "little")
    return json.loads(file[8 : 8 + length])["empty"]["dtype"]


def _do_together(work: Callable[[], None], group: ProcessGroup | None) -> None:
    # Every process waits for the others, and raises what kept one of them from it.
    error = None
    try:
        work()
    except OSError as failed:
        error = failed
    errors: list[OSError | None] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(errors, error, group)
    for each in errors:
        if each is not None:
            raise each


def own_rows(tensor: Tensor, *, is_first: bool) -> tuple[Tensor, int]:
    """Return what this process is to write of a tensor, and how many bytes of it lie before that.

    What is whole, the first process writes; of replicas, the first one writes.
    """
    if not isinstance(tensor, DTensor):
        return (tensor if is_first else tensor.new_empty(0)), 0
    assert tensor.placements[-1] == Shard(0)
    mine = tensor.to_local()
    place = tensor.device_mesh.get_coordinate()
    if place is None or any(place[:-1]) or not mine.numel():
        return mine.new_empty(0), 0
    before = first_row(tensor) * (mine.numel() // len(mine)) * tensor.element_size()
    return mine.contiguous(), before


def _save(
    writer: HuggingFaceStorageWriter, tensors: Mapping[str, Tensor], group: ProcessGroup | None
) -> None:
    try:
        save(dict(tensors), storage_writer=writer, process_group=group)
    except CheckpointException as error:  # which is no `Exception`
        reason, _ = next(iter(error.failures.values()))
        raise reason from None


def read_pieces(folder: Path, like: Callable[[str], Tensor | None]) -> dict[str, Tensor]:
    """Read what `write_pieces` has written; every process reads what it is to hold, and waits for no other.

    Args:
        like: Tells by a tensor's name another one of as many rows, in whose layout it is wanted. Without one,
            or where that is whole, it is read whole.
    """
    reader = HuggingFaceStorageReader(str(folder))
    found = reader.read_metadata().state_dict_metadata
    tensors = {
        name: _room(each.size, each.properties.dtype, like(name))
        for name, each in found.items()
        if isinstance(each, TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # it is not, but we need no other
        load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def _room(size: torch.Size, dtype: torch.dtype, like: Tensor | None) -> Tensor:
    if isinstance(like, DTensor) and like.dim() == len(size) and like.shape[:1] == size[:1]:
        return empty_pieces(size, dtype=dtype, device_mesh=like.device_mesh, placements=like.placements)
    return torch.empty(size, dtype=dtype)
