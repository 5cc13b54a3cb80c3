"""How devices can share a run, and what each way costs a device in memory and in traffic.

    DDP       every device holds everything and averages gradients     (torch)
    FSDP2     weights, gradients and state divided, layers gathered when needed   (torch; as ZeRO-3)
    HSDP      the same within each machine, whose gradients are then averaged over machines   (torch)

Sources: Rajbhandari et al., 2020, "ZeRO", sections 5 and 7; Zhao et al., 2023, "PyTorch FSDP". Traffic is
what one device sends in one step; it receives as much. All-gather and reduce-scatter of X bytes by N devices
send X (N - 1) / N each, and an all-reduce is both (Patarasuk and Yuan, 2009). What FSDP2 gathers and sums,
and when, is as `training/` configures it.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

from .model_costs import SINGLE, Kept


@dataclass(frozen=True)
class Memory:
    """Bytes on one device at the height of a step, by what they are for."""

    weights: float
    """With their copies in the format of the products, where autograd keeps these."""
    gradients: float
    """As long as they are kept, that is until the step is taken."""
    optimizer: float
    """Its state, and a moving average of the weights."""
    activations: float
    """What the stacks keep of one micro-batch for the backward pass."""
    loss: float
    """The vocabulary's share: a chunk of logits, the head's gradient, the targets' states."""
    buffers: float
    """What communication holds: gathered weights, gradients on their way."""

    @property
    def total(self) -> float:
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class Load:
    """What a layout has to hold and to send, whichever it is."""

    parameters: int
    """Parameters of all models."""
    block_parameters: int
    """Those of all layers."""
    largest_block: int
    """Those of the largest layer."""
    optimizer_bytes: int
    """State of the optimizer, and a moving average of the weights."""
    product_bytes: int
    """Bytes of a number in a product."""
    kept: Kept
    """For the backward pass, where weights are in float32 and products cast them."""
    kept_of_cast: Kept
    """The same where the weights themselves have the format of the products."""
    loss_bytes: Callable[[int], float]
    """What the vocabulary's loss holds of a micro-batch, by its sequences."""
    offloads: bool = False
    """Whether the CPU keeps what is divided."""


@dataclass(frozen=True)
class Layout:
    """A way to share a run."""

    name: str
    """What it is called."""
    devices: int
    """How many take part."""
    shards: int = 1
    """How many hold a model together; 1: each has all of it."""

    def memory(self, load: Load, sequences: int) -> Memory:
        """Count what one device holds, with so many sequences in a micro-batch.

        Sharded, it holds the layer at work and the next one, and token table, final norm and heads stay
        gathered from the forward to the end of the backward pass. Gradients lie in DDP's buckets, so that
        these cost nothing.
        """
        is_sharded = self.shards > 1
        part = 0.0 if is_sharded and load.offloads else 1 / self.shards
        kept = load.kept_of_cast if is_sharded else load.kept
        gathered = load.parameters - load.block_parameters + 2 * load.largest_block
        return Memory(
            weights=SINGLE * load.parameters * part + kept.fixed,
            gradients=SINGLE * load.parameters * part,
            optimizer=load.optimizer_bytes * part,
            activations=sequences * kept.per_sequence,
            loss=load.loss_bytes(sequences),
            buffers=(load.product_bytes + SINGLE) * gathered if is_sharded else 0,
        )

    def traffic_within(self, load: Load, micro_batches: int) -> float:
        """Count the bytes that a device sends in a step to those that hold a model together with it.

        In every micro-batch: gather layers twice and the rest once, and sum gradients in float32.
        """
        moved = load.product_bytes * (load.parameters + load.block_parameters) + SINGLE * load.parameters
        return (self.shards - 1) / self.shards * micro_batches * moved

    def traffic_between(self, load: Load) -> float:
        """Count those that it sends to all-reduce its part of the gradients, once a step, in float32."""
        replicas = self.devices / self.shards
        return 2 * (replicas - 1) / replicas * SINGLE * load.parameters / self.shards


def layouts(devices: int, per_machine: int) -> list[Layout]:
    """List the layouts that a number of devices allows; one device first, for comparison.

    Replicas of sharded models need several machines of equal size.
    """
    alone = [Layout("one device", 1)]
    if devices == 1:
        return alone
    has_replicas = devices > per_machine > 1 and devices % per_machine == 0
    hybrid = [Layout("HSDP", devices, per_machine)] if has_replicas else []
    return [*alone, Layout("DDP", devices), Layout("FSDP2", devices, devices), *hybrid]
