"""Which examples of an epoch make which step, and which sequences of a step make which micro-batch.

Both are functions of lengths and a seed. Steps hold a number of examples, or nearly equal tokens.

Legend: E examples of an epoch, S sequences of a step, P processes.
"""

from collections.abc import Sequence
from itertools import count, pairwise

import numpy as np


def plan_steps(
    lengths: np.ndarray,
    tokens_per_step: int,
    rng: np.random.Generator | None,
    components: np.ndarray | None = None,
    strata: np.ndarray | None = None,
    examples_per_step: int | None = None,
) -> list[np.ndarray]:
    """Cut examples of the given lengths (E,) into steps, every example in exactly one.

    Steps have `examples_per_step` examples, the last one what is left. If that is not said, they have at most
    `tokens_per_step` tokens, and nearly as many; no small one is left over at the end.
    Without `rng` the steps follow the examples' order. `components` (E,) number the objective of a mixture
    that each example is for: every step then has the mixture of the epoch, and with `rng` an example of each
    objective, if there are enough. `strata` (E, 2) number finer kinds of examples, of which every step has
    the mixture of the epoch, too, and the pass over its source that an example is of: one ends before the
    next begins. A step's examples go from short to long, as its micro-batches will: to cut
    these, nothing has to be moved.
    """
    total = int(lengths.sum())
    if examples_per_step is None and total < tokens_per_step:
        raise ValueError(
            f"the corpus has {total:,} tokens in {len(lengths):,} examples, fewer than tokens_per_step = "
            f"{tokens_per_step:,}: lower tokens_per_step, or add more text"
        )
    order = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
    if (kinds := components if strata is None else strata) is not None:
        order = interleave(order, lengths, kinds)
    if examples_per_step is None:
        edges = _step_edges(lengths[order], tokens_per_step)
    else:
        edges = [*range(0, len(order), examples_per_step), len(order)]
    steps = [order[first:last] for first, last in pairwise(edges)]
    if rng is not None and components is not None and fewest_examples(steps, components) == 0:
        steps = cut_each(order, lengths, components, tokens_per_step) or steps
    for step in steps:
        step[:] = step[np.argsort(lengths[step], kind="stable")]
    return steps


def fewest_examples(steps: Sequence[np.ndarray], components: np.ndarray | None) -> int:
    """Count the examples of the smallest step, or in a mixture those of an objective in any step."""
    if components is None:
        return min(map(len, steps))
    num_components = int(components.max()) + 1
    return min(int(np.bincount(components[step], minlength=num_components).min()) for step in steps)


def interleave(order: np.ndarray, lengths: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Merge the components of an order of examples (E,) evenly, so that any stretch of it has all of them.

    Each component keeps its own order, or with strata (E, 2) that of its passes; an example comes where as
    large a part of its component's tokens is behind it as of the others'.
    """
    if components.ndim == 2:
        components, passes = components.T
        order = order[np.argsort(passes[order], kind="stable")]
    place = np.empty(len(order))
    for component in np.unique(components):
        chosen = np.flatnonzero(components[order] == component)
        tokens = lengths[order[chosen]]
        place[chosen] = (np.cumsum(tokens) - tokens / 2) / tokens.sum()
    return order[np.argsort(place, kind="stable")]


def cut_each(order: np.ndarray, lengths: np.ndarray, components: np.ndarray, limit: int) -> list[np.ndarray]:
    """Cut each component of an order of examples (E,) by itself, into steps with an example of every one.

    An example longer than its component's share of a step makes `interleave` leave some steps without that
    component. These steps have all, but are less full. There are none if a component has too few examples.
    """
    orders = [order[components[order] == component] for component in np.unique(components)]
    parts = -(-int(lengths.sum()) // limit)
    while parts <= min(map(len, orders)):
        edges = [cut_evenly(lengths[examples], parts) for examples in orders]
        sums = [
            np.add.reduceat(lengths[examples], bounds[:-1])
            for examples, bounds in zip(orders, edges, strict=True)
        ]
        if np.sum(sums, axis=0).max() <= limit:
            pieces = (
                np.split(examples, bounds[1:-1]) for examples, bounds in zip(orders, edges, strict=True)
            )
            return [np.concatenate(step) for step in zip(*pieces, strict=True)]
        parts += 1 + parts // 50
    return []


def _step_edges(lengths: np.ndarray, limit: int) -> list[int]:
    # An example longer than the limit stands alone.
    parts = -(-int(lengths.sum()) // limit)
    while parts < len(lengths):
        edges = cut_evenly(lengths, parts)
        sums = np.add.reduceat(lengths, edges[:-1])
        if (longest := sums[np.diff(edges) > 1].max(initial=0)) <= limit:
            return edges
        parts = max(parts + 1, int(parts * longest / limit))
    return list(range(len(lengths) + 1))


def cut_evenly(lengths: np.ndarray, parts: int) -> list[int]:
    """Cut a row of lengths into consecutive non-empty parts of nearly equal sums; return the edges."""
    ends = np.cumsum(lengths)
    goals = ends[-1] * np.arange(1, parts) / parts
    edges = np.searchsorted(ends, goals)
    edges += ends[edges] - lengths[edges] / 2 < goals  # a length belongs to the side that holds its middle
    steps = np.arange(1, parts)
    edges = np.maximum.accumulate(np.maximum(edges, 1) - steps) + steps  # every part takes at least one ...
    edges = np.minimum(edges, len(lengths) - parts + steps)  # ... and leaves one for each that follows
    return [0, *edges.tolist(), len(lengths)]


def spread(lengths: np.ndarray, num_processes: int, process_index: int) -> np.ndarray:
    """Deal the sequences of a step (S,) out to processes so that each has long and short ones; one's numbers.

    From the longest on, they go round the processes there and back: the tokens of two processes differ by one
    sequence at most.
    """
    lap, place = np.divmod(np.arange(len(lengths)), num_processes)
    receiver = np.where(lap % 2, num_processes - 1 - place, place)
    return np.sort(np.argsort(-lengths, kind="stable")[receiver == process_index])


def share(
    lengths: np.ndarray, limit: int, num_processes: int, process_index: int
) -> tuple[np.ndarray, list[int]]:
    """Deal the sequences of a step (S,) out in micro-batches of at most `limit` tokens.

    Sequences are sorted by length and cut into the smallest multiple of `num_processes` micro-batches that
    keeps the limit; a sequence longer than the limit stands alone. Micro-batch i goes to process i modulo P.
    Where there are fewer sequences than processes, the last processes receive none.

    Returns the numbers of this process's sequences, and the edges between its micro-batches.
    """
    order = np.argsort(lengths, kind="stable")
    if num_processes == 1 and lengths.sum() <= limit:
        return order, [0, len(order)]
    edges = _micro_batch_edges(lengths[order], limit, num_processes)
    mine = list(pairwise(edges))[process_index::num_processes]
    chosen = np.concatenate([order[first:last] for first, last in mine] or [order[:0]])
    return chosen, np.cumsum([0, *(last - first for first, last in mine)]).tolist()


def _micro_batch_edges(lengths: np.ndarray, limit: int, multiple: int) -> list[int]:
    # Parts keep the limit, and their number is a multiple, if it can be.
    short = lengths[lengths <= limit]
    alone = list(range(len(short) + 1, len(lengths) + 1))
    fewest = max(-(-int(short.sum()) // limit), 1 if len(short) else 0)
    for parts in count(fewest + -(fewest + len(alone)) % multiple, multiple):
        if parts >= len(short):
            return list(range(len(lengths) + 1))
        edges = cut_evenly(short, parts)
        if np.add.reduceat(short, edges[:-1]).max() <= limit:
            return edges + alone
    raise AssertionError("unreachable: the count has no end")
