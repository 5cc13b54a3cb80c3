"""What can be read from states: linear probes of each layer, beside control tasks.

A probe is a classifier of frozen states. That it succeeds may only mean that it has learned: a control task
gives each word a label at random, which is in no state but can be learned by heart. Selectivity is how much
better the probe is at the real labels (Hewitt and Liang, 2019). Probes here are linear and regularized, which
makes them selective. The other baselines: the most frequent label, the states that the first block reads,
which know no context, and those of `untrained(model)`.

A probe that succeeds says that the states hold the labels, not that the model uses them (Belinkov, 2022).

Shapes: B batch, T positions, L blocks, n labelled tokens, C model width.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from transformers import PreTrainedModel

from .activation_patching import record_states
from .inspected_model import Batch, sequence_numbers, with_decoder_input

IGNORED = -100
"""Label of a position that is none of a probe's."""


@dataclass(frozen=True)
class TokenStates:
    """The states of labelled tokens.

    Args:
        states: Of what the first block reads and of each block's results, (L + 1, n, C).
        labels: Classes, (n,).
        types: What control tasks label: ids of tokens, (n,), or of words.
        sequences: Number of the text that each token is of, (n,).
    """

    states: Tensor
    labels: Tensor
    types: Tensor
    sequences: Tensor


@dataclass(frozen=True)
class ProbeScore:
    """What a probe of one layer reaches on texts that it has not been trained on.

    Args:
        layer: 0 is what the first block reads.
        accuracy: Share of labels that are found.
        control: The same of a probe that is trained on the labels of the control task.
        majority: The same of the most frequent label of the texts for training.
    """

    layer: int
    accuracy: float
    control: float
    majority: float

    @property
    def selectivity(self) -> float:
        """How much better the real labels are found than those of the control task."""
        return self.accuracy - self.control


def token_states(
    model: PreTrainedModel, batches: Iterable[tuple[Batch, Tensor]], blocks: Sequence[nn.Module] | None = None
) -> TokenStates:
    """Collect the states of labelled tokens.

    Args:
        model: The model, which is evaluated.
        batches: What it reads, padded or packed, each with the labels of its tokens (B, T), `IGNORED` where
            there is none. Of a sequence-to-sequence model, tokens of the target.
        blocks: By default `find_blocks(model)`.

    Raises:
        ValueError: Labels have another size than the states.
    """
    parts, num_sequences = [], 0
    for given, labels in batches:
        batch = with_decoder_input(model, given)
        states = torch.stack(record_states(model, given, blocks)).cpu()  # (L+1, B, T, C)
        if (size := (*states.shape[1:3],)) != (*labels.shape,):
            raise ValueError(
                f"labels have the size {(*labels.shape,)}, but states {size}: give a label for each "
                f"position, {IGNORED} where there is none"
            )
        chosen = labels != IGNORED
        ids = batch["decoder_input_ids"] if "decoder_input_ids" in batch else batch["input_ids"]
        numbers = sequence_numbers(batch, labels.shape) + num_sequences
        num_sequences = int(numbers.max()) + 1
        parts.append((states[:, chosen], labels[chosen], ids.cpu()[chosen], numbers.cpu()[chosen]))
    states, *others = zip(*parts, strict=True)
    return TokenStates(torch.cat(states, dim=1), *map(torch.cat, others))


def control_labels(types: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """Give each type a label at random, drawn as often as `labels` has it: the control task, (n,)."""
    random = np.random.default_rng(seed)
    known, places = np.unique(types.numpy(), return_inverse=True)
    return torch.from_numpy(random.choice(labels.numpy(), size=len(known))[places])


def probe_layers(
    tokens: TokenStates, held_out: float = 0.3, seed: int = 0, strength: float = 1.0
) -> list[ProbeScore]:
    """Train a probe of each layer's states, and one of the control task's labels.

    The probe is logistic regression on standardized states, by scikit-learn. Whole texts are held out; words
    are not, since control labels of new words could not be learned.

    Args:
        tokens: As `token_states` gives them.
        held_out: Share of the texts that a probe is tested on.
        seed: Of the choice of texts, and of control labels.
        strength: Inverse of the L2 penalty, scikit-learn's `C`: the lower, the more selective.

    Returns:
        For each layer, what its probes reach.

    Raises:
        ValueError: There is one label only, or one text.
    """
    known = tokens.sequences.unique()
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))
    tested = torch.isin(tokens.sequences, known[order[: max(1, round(held_out * len(known)))]])
    train, test = (~tested).numpy(), tested.numpy()
    real, control = tokens.labels.numpy(), control_labels(tokens.types, tokens.labels, seed).numpy()
    if min(len(np.unique(labels[train])) for labels in (real, control)) < 2:
        raise ValueError(
            f"{len(known)} texts with {len(tokens.types.unique())} words and {len(np.unique(real))} labels "
            "are too few for a probe and its control: give several texts with two labels or more"
        )
    values, counts = np.unique(real[train], return_counts=True)
    majority = float((real[test] == values[counts.argmax()]).mean())
    scores = []
    for layer, states in enumerate(tokens.states.float().numpy()):
        found = [
            make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))
            .fit(states[train], labels[train])
            .score(states[test], labels[test])
            for labels in (real, control)
        ]
        scores.append(ProbeScore(layer, float(found[0]), float(found[1]), majority))
    return scores
