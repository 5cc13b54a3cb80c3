"""Adam and AdamW that move only the rows of a table which have had a gradient.

A batch reads few rows of a table of words, which may be half of a small model, and the gradient of all others
is zero. Such rows have moments of zero as long as they have had no gradient, and neither optimizer moves them
then, for tables do not decay. So a gradient that says which rows it has (torch's sparse layout) is worked on
in the rows that any step has reached: it is neither filled with zeros nor read as a whole for its norm, and
the moments of the reached rows lie beside each other. Results are those of whole tables to the last bit.

A state that is saved has these rows, in torch's sparse layout; loading a checkpoint makes tables of them.

Legend: V rows of a table, A of them reached, U reached by this step, E width.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.adam import adam
from torch.optim.adamw import adamw

AVERAGE, SQUARE, STEP = "exp_avg", "exp_avg_sq", "step"
"""Names of a parameter's state in torch's optimizers."""

FEWEST_ROWS = 2**12
"""Tables with fewer rows are updated whole: what is saved is little."""

MOST_REACHED = 0.5
"""Share of a table's rows from which on it is updated whole, since rows have to be brought together."""

LINE = 16
"""Widths are a multiple of it: torch's kernel rounds what is left of a tensor behind it in another way."""


@contextmanager
def gradients_by_rows(model: nn.Module, optimizer: Optimizer, accelerator: Accelerator) -> Iterator[None]:
    """Let the large tables on a CPU that nothing else reads have gradients of some rows, as a context.

    Those of heads tied to a table are of all its rows; so are those that several processes exchange.
    """
    moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
    can_update = isinstance(inner, UpdatesRows) and inner.defaults["fused"] and accelerator.num_processes == 1
    modules = list(model.modules()) if can_update else []
    uses = [id(weight) for module in modules for weight in module.parameters(recurse=False)]
    tables = [
        module
        for module in modules
        if type(module) is nn.Embedding
        and type(module.weight) is nn.Parameter
        and module.weight.is_cpu
        and module.weight.dtype == torch.float32
        and id(module.weight) in moved
        and uses.count(id(module.weight)) == 1
        and module.num_embeddings >= FEWEST_ROWS
        and module.embedding_dim % LINE == 0
        and not (module.sparse or module.scale_grad_by_freq)
    ]
    for table in tables:
        table.sparse = True
    try:
        yield
    finally:
        for table in tables:
            table.sparse = False


class ReachedRows:
    """The rows of a table (V, E) that gradients have reached, and their moments.

    Args:
        step: Number of updates so far, as torch's fused optimizers count them.
    """

    def __init__(self, table: Tensor, step: Tensor):
        self.step = step
        self.rows = torch.empty(0, dtype=torch.int64)  # (A,)
        self.place = torch.full((len(table),), -1)  # (V,), of each row among them
        self.buffers = torch.zeros(4, 0, table.shape[1], dtype=table.dtype)  # (4, at least A, E)

    @classmethod
    def of(cls, table: Tensor, state: dict[str, Tensor]) -> "ReachedRows":
        """Take the moments of a whole table apart; without a state, it has not been updated."""
        reached = cls(table, state.get(STEP, torch.tensor(0.0)))
        if not state:
            return reached
        rows = (state[AVERAGE].any(1) | state[SQUARE].any(1)).nonzero().squeeze(1)
        reached.add(rows)
        for buffer, name in zip(reached.moments, (AVERAGE, SQUARE), strict=True):
            torch.index_select(state[name], 0, rows, out=buffer)
        return reached

    def state(self) -> dict[str, Tensor]:
        """Return the state of the whole table: sparse moments, since those of other rows are zero."""
        rows, order = self.rows.sort()
        size = len(self.place), self.buffers.shape[2]
        options: dict[str, Any] = {"is_coalesced": True, "check_invariants": True}
        moments = (torch.sparse_coo_tensor(rows[None], each[order], size, **options) for each in self.moments)
        return {STEP: self.step, **dict(zip((AVERAGE, SQUARE), moments, strict=True))}

    @property
    def moments(self) -> Tensor:
        """First and second moments of the rows, (2, A, E)."""
        return self.buffers[:2, : len(self.rows)]

    def add(self, rows: Tensor) -> Tensor:
        """Note rows (U,), each once, and return their places (U,)."""
        new = rows[self.place[rows] < 0]
        self.place[new] = torch.arange(len(self.rows), len(self.rows) + len(new))
        self.rows = torch.cat([self.rows, new])
        if len(self.rows) > self.buffers.shape[1]:
            more = max(len(self.rows), len(self.rows) * 3 // 2) - self.buffers.shape[1]
            self.buffers = nn.functional.pad(self.buffers, (0, 0, 0, more))
        return self.place[rows]

    def update(self, table: Tensor, gradient: Tensor, move: Callable[..., None]) -> None:
        """Move the reached rows of the table by a gradient that is zero but for some, in torch's layout."""
        places = self.add(gradient.indices()[0])
        average, square, dense, weights = self.buffers[:, : len(self.rows)]
        dense.index_copy_(0, places, gradient.values())
        torch.index_select(table, 0, self.rows, out=weights)
        move([weights], [dense], [average], [square], [], [self.step])
        table.index_copy_(0, self.rows, weights)
        dense.index_fill_(0, places, 0)


class UpdatesRows(Optimizer):
    """What the two optimizers share. Abstract."""

    move: Callable[..., None]
    """Torch's function that updates parameters, given with their gradients and states in lists."""

    grad_scale: Tensor | None = None
    """By what torch's fused kernels divide gradients; `None`: they do not."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.reached: dict[Tensor, ReachedRows | None] = {}
        super().__init__(*args, **kwargs)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move all parameters once; of a table whose gradient is sparse, the rows that any has reached."""
        assert closure is None
        by_rows: list[tuple[dict[str, Any], Tensor, Tensor, ReachedRows]] = []
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is None or not (table.grad.is_sparse or self.reached.get(table)):
                    continue
                if reached := self.rows_of(table, is_whole=not table.grad.is_sparse):
                    by_rows.append((group, table, table.grad.coalesce(), reached))
                    table.grad = None
                elif table.grad.is_sparse:
                    table.grad = table.grad.to_dense()
        super().step()
        for group, table, gradient, reached in by_rows:
            assert group["weight_decay"] == 0  # which would move all rows
            reached.update(table, gradient, partial(type(self).move, **self.constants(group)))

    def rows_of(self, table: Tensor, *, is_whole: bool = False) -> "ReachedRows | None":
        """Return the reached rows of a table; `None`, from then on, if the gradient is that of all of it."""
        if table not in self.reached:
            state = self.state.pop(table, None)
            self.reached[table] = ReachedRows.of(table, state or {})
        reached = self.reached[table]
        if reached is not None and (is_whole or len(reached.rows) > MOST_REACHED * len(table)):
            whole = {name: value.to_dense() for name, value in reached.state().items()}
            self.state[table], self.reached[table] = whole, None
        return self.reached[table]

    def constants(self, group: dict[str, Any]) -> dict[str, Any]:
        """Return what torch's function reads of a group, and of this step."""
        (beta1, beta2), scalings = group["betas"], ("grad_scale", "found_inf")
        return {
            "fused": True,
            "amsgrad": group["amsgrad"],
            "beta1": beta1,
            "beta2": beta2,
            "lr": group["lr"],
            "weight_decay": group["weight_decay"],
            "eps": group["eps"],
            "maximize": group["maximize"],
            **{name: getattr(self, name, None) for name in scalings},
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state, of tables that of the reached rows."""
        state = super().state_dict()
        parameters = (parameter for group in self.param_groups for parameter in group["params"])
        for number, parameter in enumerate(parameters):
            if (reached := self.reached.get(parameter)) is not None:
                state["state"][number] = reached.state()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)  # of whole tables
        self.reached.clear()


class RowAdam(UpdatesRows, Adam):
    """Torch's Adam."""

    move = staticmethod(adam)


class RowAdamW(UpdatesRows, AdamW):
    """Torch's AdamW."""

    move = staticmethod(adamw)
