"""How devices can share a run, and what each way costs a device in memory and in traffic.

    DDP       every device holds everything and averages gradients     (torch)
    ZeRO-1    the optimizer's state is divided                         (DeepSpeed; for comparison)
    ZeRO-2    gradients as well                                        (DeepSpeed; for comparison)
    FSDP2     weights as well, gathered layer by layer, as in ZeRO-3   (torch)
    HSDP      the same within each machine, whose gradients are then averaged over machines   (torch)

Sources: Rajbhandari et al., 2020, "ZeRO", sections 5 and 7; Zhao et al., 2023, "PyTorch FSDP"; how many bytes
a number has, what is gathered when, and how large buffers are by default, is read from torch 2.13, accelerate
1.15 and DeepSpeed 0.19. Traffic counts what one device sends in one step; it receives as much. All-gather and
reduce-scatter of X bytes by N devices send X (N - 1) / N each, and an all-reduce is both (Patarasuk and Yuan,
2009). What FSDP2 gathers and sums, and when, is as `training/` configures it.

Legend: P parameters, N devices, b bytes of a number in a product (2 or 4).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields

from .model_costs import Kept

MASTER = 4
"""Bytes of a weight, or a gradient of it, in float32."""

DEEPSPEED_BUCKET = 500_000_000
"""Numbers of the buffer in which DeepSpeed collects gradients to send (its default `reduce_bucket_size`); it
is as large for small models."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one device at the height of a step, by what they are for."""

    weights: float
    """With their copies in the format of the products, where autograd keeps these."""
    gradients: float
    """As long as they are kept, that is until the step is taken."""
    optimizer: float
    """Its state, a moving average of the weights, and the float32 weights that it updates where the model's
    are of half precision."""
    activations: float
    """What the stacks keep of one micro-batch for the backward pass."""
    loss: float
    """The vocabulary's share: a chunk of logits, the head's gradient, the targets' states."""
    buffers: float
    """What communication holds: gathered weights, gradients on their way."""

    @property
    def total(self) -> float:
        """All of it."""
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class Load:
    """What a layout has to hold and to send, whichever it is."""

    parameters: int
    """P."""
    block_parameters: int
    """Those of all layers."""
    largest_block: int
    """Those of the largest layer."""
    optimizer_bytes: int
    """State of the optimizer, and a moving average of the weights."""
    product_bytes: int
    """Bytes of a number in a product, b."""
    kept: Kept
    """For the backward pass, where weights are in float32 and products cast them."""
    kept_of_cast: Kept
    """The same where the weights themselves have the format of the products."""
    loss_bytes: Callable[[int], float]
    """What the vocabulary's loss holds of a micro-batch, by its sequences."""
    offloads: bool = False
    """Whether the CPU keeps what is divided."""


@dataclass(frozen=True)
class Share:
    """One device's part of a step."""

    micro_batches: int
    """How many follow one another."""
    sequences: int
    """Sequences of the largest of them."""


@dataclass(frozen=True)
class Layout(ABC):
    """A way to share a run. Abstract: see its subclasses."""

    name: str
    """What it is called."""
    devices: int
    """How many take part, N."""

    @abstractmethod
    def memory(self, load: Load, share: Share) -> Memory:
        """Count what one device holds."""

    @abstractmethod
    def traffic(self, load: Load, share: Share) -> float:
        """Count the bytes that one device sends in a step."""

    def traffic_within(self, load: Load, share: Share) -> float:
        """Count those of them that never leave a machine, although there are several."""
        return 0.0

    @property
    def sent(self) -> float:
        """Share of a whole that a device sends to gather it, or to sum its parts: (N - 1) / N."""
        return (self.devices - 1) / self.devices


@dataclass(frozen=True)
class DataParallel(Layout):
    """Everything on every device; with one device, a run that shares nothing."""

    def memory(self, load: Load, share: Share) -> Memory:
        """Count everything whole; gradients lie in DDP's buckets, so that these cost nothing."""
        return Memory(
            weights=MASTER * load.parameters + load.kept.fixed,
            gradients=MASTER * load.parameters,
            optimizer=load.optimizer_bytes,
            activations=share.sequences * load.kept.per_sequence,
            loss=load.loss_bytes(share.sequences),
            buffers=0,
        )

    def traffic(self, load: Load, share: Share) -> float:
        """All-reduce the gradients, once a step, in float32."""
        return 2 * self.sent * MASTER * load.parameters


@dataclass(frozen=True)
class Zero(Layout):
    """DeepSpeed's stages 1 and 2: half-precision weights everywhere, float32 ones beside the optimizer."""

    shards_gradients: bool
    """Whether this is stage 2."""

    def memory(self, load: Load, share: Share) -> Memory:
        """Divide the optimizer's state, its float32 weights and, in stage 2, the gradients."""
        whole = load.product_bytes * load.parameters
        return Memory(
            weights=whole + load.kept_of_cast.fixed,
            gradients=whole / self.devices if self.shards_gradients else whole,
            optimizer=(load.optimizer_bytes + MASTER * load.parameters) / self.devices,
            activations=share.sequences * load.kept_of_cast.per_sequence,
            loss=load.loss_bytes(share.sequences),
            buffers=load.product_bytes * DEEPSPEED_BUCKET,
        )

    def traffic(self, load: Load, share: Share) -> float:
        """Reduce gradients to their owners (in stage 2 after every micro-batch), gather the new weights."""
        reductions = share.micro_batches if self.shards_gradients else 1
        return self.sent * load.product_bytes * load.parameters * (reductions + 1)


@dataclass(frozen=True)
class FullySharded(Layout):
    """FSDP2, a unit for each layer: weights, gradients and state divided, layers gathered when needed."""

    def memory(self, load: Load, share: Share) -> Memory:
        """Divide what stays; hold the layer at work and the next one, and what is outside of layers.

        Token table, final norm and heads stay gathered from the forward to the end of the backward pass.
        """
        part = 0.0 if load.offloads else 1 / self.shards
        held = MASTER * load.parameters * part
        gathered = load.parameters - load.block_parameters + 2 * load.largest_block
        return Memory(
            weights=held + load.kept_of_cast.fixed,
            gradients=held,
            optimizer=load.optimizer_bytes * part,
            activations=share.sequences * load.kept_of_cast.per_sequence,
            loss=load.loss_bytes(share.sequences),
            buffers=(load.product_bytes + MASTER) * gathered,
        )

    def traffic(self, load: Load, share: Share) -> float:
        """In every micro-batch: gather layers twice and the rest once, and sum gradients in float32."""
        gathered = load.product_bytes * (load.parameters + load.block_parameters)
        sent = (self.shards - 1) / self.shards
        return sent * share.micro_batches * (gathered + MASTER * load.parameters)

    @property
    def shards(self) -> int:
        """Devices that hold a model together."""
        return self.devices


@dataclass(frozen=True)
class HybridSharded(FullySharded):
    """HSDP: each machine holds a model as with FSDP2, and machines average its parts' gradients."""

    per_machine: int
    """Devices of a machine."""

    @property
    def shards(self) -> int:
        """Devices that hold a model together."""
        return self.per_machine

    def traffic(self, load: Load, share: Share) -> float:
        """As FSDP2 within a machine; then all-reduce a device's part of the gradients, once a step."""
        replicas = self.devices / self.per_machine
        averaged = 2 * (replicas - 1) / replicas * MASTER * load.parameters / self.shards
        return self.traffic_within(load, share) + averaged

    def traffic_within(self, load: Load, share: Share) -> float:
        """Count what FSDP2 sends."""
        return super().traffic(load, share)


def layouts(devices: int, per_machine: int) -> list[Layout]:
    """List the layouts that a number of devices allows; one device first, for comparison.

    Replicas need several machines of equal size.
    """
    alone: list[Layout] = [DataParallel("one device", 1)]
    if devices == 1:
        return alone
    has_replicas = devices > per_machine > 1 and devices % per_machine == 0
    return [
        *alone,
        DataParallel("DDP", devices),
        Zero("ZeRO-1", devices, shards_gradients=False),
        Zero("ZeRO-2", devices, shards_gradients=True),
        FullySharded("FSDP2", devices),
        *([HybridSharded("HSDP", devices, per_machine)] if has_replicas else []),
    ]
