"""Masked next-token prediction: a decoder reads in both directions and predicts masked tokens.

    <s> my dog is [MASK] .        the state of "is" predicts "hairy", as in causal language modeling

(BehnamGhader et al., 2024, "LLM2Vec", section 2.1.) It is masked language modeling whose predictions stand
one position earlier, where a decoder's are. So it makes a bidirectional model of a causal one, and one set
of weights can learn both (`hybrid_language_modeling.py`).

Legend: N packed tokens of the batch, n targets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...data.steps.examples import ExampleSource, gather
from ...data.steps.objective import IGNORE, Batch, Example
from ...data.steps.streams import one_stream
from ...modeling import TercetDecoderForCausalLM, TercetDecoderForMaskedLM
from ...training.token_objective import TokenObjective, without_targets
from .causal_language_modeling import causal_sequences
from .masked_language_modeling import MaskingRecipe
from .masking import DynamicMasking
from .recipes import Corpus, FullSequence, ObjectiveContext, single_text


class MaskedNextTokenPrediction(TokenObjective):
    """Predict the masked tokens of a decoder's input, each at the position before it; the term is `mntp`."""

    noise = "dynamic"

    def __init__(self, masking: DynamicMasking, z_loss: float = 0.0):
        super().__init__("mntp", z_loss=z_loss)
        self.masking = masking

    def at(self, progress: float) -> "MaskedNextTokenPrediction":
        return MaskedNextTokenPrediction(self.masking.at(progress), self.z_loss)

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # `labels` (1, N) are those of the next position; the first token, which no state precedes, stays
        batch = one_stream(gather(examples, "input_ids"))
        ids = batch["input_ids"][0].numpy()
        corrupted, labels = self.masking(examples, ids, seed)
        is_first = batch["position_ids"][0].numpy() == 0
        corrupted[is_first], labels[is_first] = ids[is_first], IGNORE
        batch["input_ids"] = torch.from_numpy(corrupted)[None]
        batch["labels"] = F.pad(torch.from_numpy(labels)[1:], (0, 1), value=IGNORE)[None]
        return batch

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        inputs = without_targets(batch, "labels")
        if (positions := inputs.get("output_positions")) is not None:  # of states, not of their predictions
            moved = positions + getattr(model, "module", model).logits_offset
            inputs["output_positions"] = moved.clamp(max=inputs["input_ids"].shape[1] - 1)
        output = model(**inputs, shift_labels=batch["labels"], is_causal=False, **self.loss_arguments)
        return {"mntp": output.loss}

    def goals(self, batch: Batch) -> Tensor:
        return batch["labels"][0]

    def logits_at(self, model: nn.Module, batch: Batch, positions: Tensor) -> Tensor:
        # of states that see both sides, whichever of its two classes the model has
        assert isinstance(model, (TercetDecoderForCausalLM, TercetDecoderForMaskedLM))
        inputs = without_targets(batch, "labels")
        outputs = model.model(**inputs, is_causal=False, use_cache=False, output_positions=positions)
        return model.compute_logits(outputs.last_hidden_state)[0]


@dataclass(frozen=True)
class MaskedNextTokenRecipe(MaskingRecipe):
    """Predict masked tokens with a decoder that reads in both directions (LLM2Vec)."""

    TERMS = {"mntp": ("hidden tokens, predicted from the position before", "fill-mask")}
    model_class = TercetDecoderForMaskedLM
    template = "plain"

    kind: Literal["masked_next_token_prediction"]
    """Which objective this is."""

    def build(self, context: ObjectiveContext) -> MaskedNextTokenPrediction:
        return MaskedNextTokenPrediction(self.dynamic_masking(context.tokenizer), self.z_loss)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> ExampleSource:
        return causal_sequences(single_text(corpus, self.kind), context)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        # the first token is never a target
        return FullSequence(sequence_length, 0, self.mean_mlm_probability * (sequence_length - 1))
