"""On-policy distillation: the student writes, and learns what its teacher expects of what it has written.

    decoder     given    b1 b2 | t1 t2 t3 t4          seq2seq     given    source | t1 t2 t3 </s>
                written  b1 b2 | y1 y2 y3 y4                      written  source | y1 y2 </s> y4
                                 ^  ^  ^  ^   compared                              ^  ^  ^

(Agarwal et al., 2024, "On-Policy Distillation of Language Models", section 3, algorithm 1.) Which steps are
written is drawn with their batches, with a number for each token that decides what stands there. So what is
written depends on the step and the weights alone: not on processes, micro-batches or torch's generators.

Deviations: as many tokens are written as the given target has, and what follows a written end of text is not
compared, but counted among the targets, whose number has to be known before the loss.

Shapes: S sequences, N packed tokens of the stream that is predicted, n written tokens, T of the longest, V
vocabulary.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers.modeling_outputs import BaseModelOutput

from ..data.steps.objective import INDEX, Batch
from ..data.steps.streams import in_rows
from ..modeling import TercetPreTrainedModel
from ..modeling.compatibility import CACHE
from ..modeling.generation.prepacked_weights import prepacked_weights
from ..pretraining.objectives.causal_language_modeling import CausalLanguageModeling
from ..pretraining.objectives.randomness import SequenceDraws
from ..pretraining.objectives.teacher_forcing import TeacherForcing
from ..training.devices.precision import Precision, precision_of, products_in
from ..training.devices.sharding import sharding_plugin
from ..training.evaluation import evaluation_mode
from ..training.token_objective import OutputPositions, TokenObjective, sample_tokens
from .general_recipe import GeneralRecipe, OnPolicyRecipe
from .losses import DistillationLoss, VocabularyLoss
from .model_outputs import base_of

BEGINNINGS = "beginnings"
"""In a batch that is written: how many labels of each sequence are given (S,)."""

DRAWS = "decoder_draws"
"""In a batch that is written: a number from 0 to 1 for each label (1, N), which decides what stands there."""


class Cells(NamedTuple):
    """Where written tokens stand: `positions` in the stream, and cells of a table of sequences, (n,) each."""

    positions: Tensor
    owners: Tensor
    """Row."""
    offsets: Tensor
    """Column."""


class OnPolicy:
    """Lets a student write the targets of some steps.

    Args:
        recipe: Says how many steps are written, and how.
        base: Makes the batches; its places are those of the other steps.
        student: Writes, with the weights that it has then.
        ends: Tokens that end what is written.
        precision: Precision of the run.
    """

    def __init__(
        self,
        recipe: OnPolicyRecipe,
        base: TokenObjective,
        student: TercetPreTrainedModel,
        ends: Sequence[int],
        precision: Precision = "fp32",
    ):
        self.recipe = recipe
        self.base = base
        self.student = student
        self.ends = list(ends)
        self.precision = precision
        self.continues = isinstance(base, CausalLanguageModeling)

    def draw(self, batch: Batch, seed: int) -> Batch:
        """Draw by a step's seed whether its targets are written; if so, add what decides which they are."""
        if np.random.default_rng(seed).random() >= self.recipe.probability:
            return batch
        lengths = np.diff(batch["cu_seq_lens_q"].numpy()).astype(np.int64)
        given = np.maximum((lengths * self.recipe.beginning).astype(np.int64), 1) if self.continues else 0
        return batch | {
            BEGINNINGS: torch.from_numpy(given * np.ones_like(lengths)),
            DRAWS: torch.from_numpy(SequenceDraws(seed + 1, batch[INDEX].numpy()).random(lengths))[None],
        }

    def count(self, batch: Batch) -> Tensor:
        """Count the tokens that are written, or the targets that are given."""
        if DRAWS not in batch:
            return self.base.targets(batch)[self.base.term]
        return (batch["cu_seq_lens_q"].diff() - batch[BEGINNINGS]).sum()

    def write(self, batch: Batch) -> tuple[Batch, OutputPositions]:
        """Replace the targets of a batch, if they are to be written, and find those that are compared."""
        if DRAWS not in batch:
            return batch, self.base.output_positions(batch)
        cells = cells_of(batch)
        width = int(cells.offsets.max()) + 1 if len(cells.offsets) else 0
        draws = batch[DRAWS].new_zeros(len(batch[BEGINNINGS]), width)
        draws[cells.owners, cells.offsets] = batch[DRAWS][0, cells.positions]
        labels = batch["labels"].clone()
        labels[0, cells.positions] = self.sample(batch, draws)[cells.owners, cells.offsets]
        written = batch | {"labels": labels}
        if self.continues:
            return written | {"input_ids": labels}, self.output_positions(labels[0], cells)
        late = labels.roll(1, dims=1)
        starts = batch["cu_seq_lens_q"][:-1]
        late[0, starts] = batch["decoder_input_ids"][0, starts]
        return written | {"decoder_input_ids": late}, self.output_positions(labels[0], cells)

    def output_positions(self, labels: Tensor, cells: Cells) -> OutputPositions:
        """Find the written labels up to the first end of each sequence, and where they are predicted."""
        is_end = torch.isin(labels[cells.positions], labels.new_tensor(self.ends)).long()
        before = is_end.cumsum(0) - is_end
        firsts = torch.searchsorted(cells.owners, cells.owners)  # of each one's sequence
        positions = cells.positions[before == before[firsts]]
        return OutputPositions(positions - 1 if self.continues else positions, labels[positions])

    @torch.no_grad()
    def sample(self, batch: Batch, draws: Tensor) -> Tensor:
        """Write as many tokens as there are numbers (S, T), each by its number, without dropout."""
        tokens = torch.zeros_like(draws, dtype=torch.long)
        name = "input_ids" if self.continues else "decoder_input_ids"
        with self.fast_products(), evaluation_mode(self.student):
            inputs = beginnings_of(batch) if self.continues else self.read_sources(batch)
            for column, numbers in enumerate(draws.T):
                outputs: Any = self.student(**inputs, use_cache=True, logits_to_keep=1)
                tokens[:, column] = sample_tokens(outputs.logits[:, -1], numbers, self.recipe.temperature)
                inputs |= {name: tokens[:, column, None], "cache": outputs[CACHE]}
                if self.continues:
                    inputs["attention_mask"] = F.pad(inputs["attention_mask"], (0, 1), value=1)
        return tokens

    def fast_products(self) -> AbstractContextManager[Any]:
        """Multiply by blocks of the weights on a CPU, and in the run's precision on a GPU."""
        device = self.student.device
        if device.type != "cpu":
            return products_in(self.precision, device)
        # Blocks are kept for models that are not in training: this one will change.
        return prepacked_weights(self.student)

    def read_sources(self, batch: Batch) -> dict[str, Any]:
        """Let the encoder read the sources, and give what the decoder is called with first."""
        bounds = batch["cu_seq_lens_k"]
        ids = in_rows(batch["input_ids"][0], bounds, batch["max_length_k"], 0)
        mask = (torch.arange(ids.shape[1], device=ids.device) < bounds.diff()[:, None]).long()
        encoder: Any = base_of(self.student).get_submodule("encoder")
        states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return {
            "encoder_outputs": BaseModelOutput(last_hidden_state=states),
            "attention_mask": mask,
            "decoder_input_ids": batch["decoder_input_ids"][0, batch["cu_seq_lens_q"][:-1], None],
        }


def cells_of(batch: Batch) -> Cells:
    """Find the labels that are written."""
    bounds, given = batch["cu_seq_lens_q"], batch[BEGINNINGS]
    owners = torch.repeat_interleave(bounds.diff())
    offsets = torch.arange(len(owners), device=owners.device) - bounds[owners] - given[owners]
    positions = torch.nonzero(offsets >= 0).squeeze(1)
    return Cells(positions, owners[positions], offsets[positions])


def beginnings_of(batch: Batch) -> dict[str, Any]:
    """Lay the beginnings of the texts below each other, so that they end together."""
    ids, starts = batch["input_ids"][0], batch["cu_seq_lens_q"].tolist()
    given = zip(starts, batch[BEGINNINGS].tolist(), strict=False)
    texts = [ids[start : start + length] for start, length in given]
    sides: dict[str, Any] = {"batch_first": True, "padding_side": "left"}
    return {
        "input_ids": pad_sequence(texts, **sides),
        "attention_mask": pad_sequence([torch.ones_like(text) for text in texts], **sides),
    }


def build_on_policy(
    general: GeneralRecipe,
    base: TokenObjective,
    losses: Sequence[DistillationLoss],
    student: TercetPreTrainedModel,
    ends: Sequence[int],
    accelerator: Accelerator,
) -> OnPolicy | None:
    """Let a student write, if a recipe wants it."""
    if general.on_policy is None:
        return None
    if (reason := refusal(general, base, losses, accelerator)) is not None:
        raise ValueError(f"on_policy: {reason}")
    return OnPolicy(general.on_policy, base, student, ends, precision_of(accelerator))


def refusal(
    general: GeneralRecipe, base: TokenObjective, losses: Sequence[DistillationLoss], accelerator: Accelerator
) -> str | None:
    """Describe why a student cannot write its targets, if there is a reason."""
    if not isinstance(base, CausalLanguageModeling | TeacherForcing):
        return (
            f"a student of {general.objective.kind} has no text to go on with: use causal_language_modeling, "
            "or an objective of sequence-to-sequence models"
        )
    if general.cache is not None:
        return (
            "a cache holds what the teacher expects of given text, not of what the student will write: "
            "leave cache out"
        )
    if general.objective_weight:
        return (
            f"what the student writes is not to be imitated, but objective_weight is "
            f"{general.objective_weight}: set it to 0"
        )
    for loss in losses:
        if not isinstance(loss, VocabularyLoss):
            return (
                f"{loss.kind} compares all tokens that are read, not what is expected where the student "
                "writes: leave it out of losses"
            )
    if sharding_plugin(accelerator) is not None:
        return (
            "under FSDP a student is in pieces, and processes that write texts of different lengths cannot "
            "gather them together: start without --use_fsdp"
        )
    return None
