"""Translation: write a text of one language in another (Vaswani et al., 2017), with teacher forcing.

Any pairs of texts do: summaries of articles, or numbers and their sorted order, are translations as well.

A decoder that has read true tokens alone has never seen a mistake, and meets its own when it writes: exposure
bias (Ranzato et al., 2016). Scheduled sampling (Bengio et al., 2015) lets it read its own predictions at some
positions, more of them as the run goes on:

    true        <start>  t1  t2  t3          read        <start>  t1  p2  t3        p2: predicted for t2
    to predict    t1     t2  t3  </s>        to predict    t1     t2  t3  </s>      unchanged

Predictions come from whole passes over the target, without gradients: a pass reads the true tokens and what
the pass before has predicted (Mihaylova and Martins, 2019, for Transformers, with one such pass). After as
many passes as a target has tokens, every prediction was made behind what is read in its place: that is the
algorithm of Bengio et al., token by token. Gradients do not flow through the choice of a token, as there.

The positions, and the numbers by which a token is drawn, belong to the batch: a step is a function of its
examples, whatever its micro-batches, and predictions are made without dropout.

Shapes: S sequences, M packed tokens of the decoder, n sampled positions, V vocabulary.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ...data.chunks import ParallelPairs
from ...data.documents import Documents
from ...data.steps.examples import ExampleSource, gather
from ...data.steps.objective import IGNORE, Batch, Example
from ...data.tokenizers.special_tokens import required_token_id, target_language
from ...modeling import TercetRecurrentSeq2SeqForConditionalGeneration, TercetSeq2SeqForConditionalGeneration
from ...training.devices.sharding import largest
from ...training.evaluation import evaluation_mode
from ...training.token_objective import sample_tokens, without_targets
from ..translation_scores import TranslationMeasure
from .randomness import SequenceDraws
from .recipes import BaseObjectiveRecipe, Corpus, FullSequence, ObjectiveContext, Smoothing, ZLoss, unsuited
from .teacher_forcing import Pairs, TeacherForcing

DRAWS, NOISE = "decoder_draws", "decoder_noise"
"""In a batch, (1, M): a number from [0, 1) where a prediction is read, else -1; a random token where one is
read, else `IGNORE`."""

STEEPNESS = 20.0
"""k of an inverse sigmoid for which a recipe names none."""

Schedule = Literal["linear", "exponential", "inverse_sigmoid"]


def linear(progress: float, final: float, steepness: float) -> float:
    """Grow at the same speed: p = final * x."""
    return final * progress


def exponential(progress: float, final: float, steepness: float) -> float:
    """Let the share of true tokens shrink by a factor: 1 - p = (1 - final)^x."""
    return 1 - (1 - final) ** progress


def inverse_sigmoid(progress: float, final: float, steepness: float) -> float:
    """Change most in the middle: 1 - p = k / (k + exp(c x)), where c makes p end at `final`.

    It begins with p = 1 / (1 + k).
    """
    if final == 0:
        return 0.0
    growth = math.log(steepness * final / (1 - final))
    return 1 - steepness / (steepness + math.exp(growth * progress))


SCHEDULES: Mapping[Schedule, Callable[[float, float, float], float]] = {
    "linear": linear,
    "exponential": exponential,
    "inverse_sigmoid": inverse_sigmoid,
}
"""The decays of Bengio et al., 2015, section 2.4, by the part of a run that is over: the probability of a
prediction at `progress` (0 to 1), which ends at `final`."""


@dataclass(frozen=True)
class ScheduledSamplingRecipe:
    """Let the decoder read its own predictions at some positions (Bengio et al., 2015)."""

    schedule: Schedule = "linear"
    """How the probability grows: `linear`, `exponential` or `inverse_sigmoid`."""
    final_probability: Annotated[float, Field(ge=0, lt=1)] = 0.25
    """Probability at the end of the run that a position reads a prediction; 0 is teacher forcing."""
    steepness: Annotated[float, Field(gt=1)] | None = None
    """k of `inverse_sigmoid`: the larger, the later it rises; 20 if left out. Others have none."""
    choice: Literal["sampled", "best"] = "sampled"
    """Whether a prediction is drawn from the model's distribution, or its most probable token."""
    passes: Annotated[int, Field(ge=1)] = 1
    """Passes over the targets that make the predictions: 1 is that of Mihaylova and Martins, 2019; as many as
    the longest target has tokens are the token by token algorithm of Bengio et al. More are not made."""

    def __post_init__(self):
        steepness = self.steepness or STEEPNESS
        if self.schedule != "inverse_sigmoid":
            if self.steepness is not None:
                raise ValueError(
                    f"steepness is {self.steepness}, but {self.schedule} schedules have "
                    "none: remove it, or choose the schedule inverse_sigmoid"
                )
        elif 0 < self.final_probability < 1 / (1 + steepness):
            raise ValueError(
                f"final_probability is {self.final_probability}, but an inverse sigmoid "
                f"with steepness {steepness} begins with {1 / (1 + steepness):.3g}: raise one of them"
            )

    def probability(self, progress: float) -> float:
        return SCHEDULES[self.schedule](progress, self.final_probability, self.steepness or STEEPNESS)

    def count_passes(self, longest: int) -> int:
        """Count the passes over targets of at most so many tokens.

        The first token is true, and a pass decides at least one more for good.
        """
        return min(self.passes, longest - 1) if self.final_probability else 0


@dataclass(frozen=True)
class DecoderReading:
    """What a decoder reads in training at a point of a run.

    Args:
        sampling: How predictions are made; `None`: there are none.
        noise: Probability that a position reads a token at random.
        progress: How much of the run is over.
    """

    sampling: ScheduledSamplingRecipe | None = None
    noise: float = 0.0
    progress: float = 0.0

    def choose(self, batch: Batch, draws: SequenceDraws) -> Batch:
        """Choose the positions of a collated batch; the first one of a target always reads the start token.

        Noise is a token of the batch's targets, so that frequent tokens are frequent there, too. A position
        that is chosen for both reads the prediction.
        """
        read, lengths = batch["decoder_input_ids"][0].numpy(), np.diff(batch["cu_seq_lens_q"].numpy())
        may_change = np.ones(len(read), dtype=bool)
        may_change[batch["cu_seq_lens_q"][:-1].numpy()] = False
        chosen: Batch = {}
        if self.sampling is not None and (probability := self.sampling.probability(self.progress)) > 0:
            is_sampled = (draws.random(lengths) < probability) & may_change
            numbers = np.where(is_sampled, draws.random(lengths, np.float32), np.float32(-1))
            chosen[DRAWS] = torch.from_numpy(numbers)[None]
        if self.noise > 0 and may_change.any():
            is_noise = (draws.random(lengths) < self.noise) & may_change
            pool = read[may_change]
            tokens = pool[(draws.random(lengths) * len(pool)).astype(np.int64)]
            chosen[NOISE] = torch.from_numpy(np.where(is_noise, tokens, IGNORE))[None]
        return batch | chosen

    def apply(self, model: nn.Module, batch: Batch) -> Batch:
        """Replace what the decoder reads at the chosen positions, and leave out what says so."""
        draws, noise = batch.get(DRAWS), batch.get(NOISE)
        batch = without_targets(batch, DRAWS, NOISE)
        read = batch["decoder_input_ids"]
        if noise is not None:
            read = torch.where(noise == IGNORE, read, noise)
        if draws is not None and self.sampling is not None:
            read = own_predictions(model, batch | {"decoder_input_ids": read}, draws, self.sampling)
        return batch | {"decoder_input_ids": read}


@torch.no_grad()
def own_predictions(
    model: nn.Module, batch: Batch, draws: Tensor, sampling: ScheduledSamplingRecipe
) -> Tensor:
    """Return the decoder's input (1, M), with predictions where `draws` (1, M) are not negative."""
    inputs, true = without_targets(batch, "labels"), batch["decoder_input_ids"]
    places = (draws[0] >= 0).nonzero().squeeze(1)
    read = true
    with evaluation_mode(model):
        for _ in range(sampling.count_passes(largest(batch["max_length_q"], model))):
            # The prediction for a position is made where the token before it is read.
            logits = model(**inputs | {"decoder_input_ids": read}, logits_to_keep=places - 1).logits[0]
            tokens = (
                logits.argmax(-1) if sampling.choice == "best" else sample_tokens(logits, draws[0, places])
            )
            read = true.index_copy(1, places, tokens[None])
    return read


class Translation(TeacherForcing):
    """Write the target of a pair; the term is `translation`.

    Args:
        decoder_start_id: What the decoder reads first.
        label_smoothing: See `TeacherForcing`; 0.1 in the paper.
        z_loss: See `TokenObjective`.
        reading: What the decoder reads in training instead of the true tokens; by default nothing.
    """

    noise = "none"

    def __init__(
        self,
        decoder_start_id: int,
        label_smoothing: float = 0.1,
        z_loss: float = 0.0,
        reading: DecoderReading | None = None,
    ):
        super().__init__("translation", decoder_start_id, label_smoothing, z_loss)
        self.reading = reading
        self.can_be_recorded = reading is None or reading.sampling is None
        # Noise is made of the tokens of all targets of a step.
        self.reads_whole_step = reading is not None and reading.noise > 0

    def at(self, progress: float) -> "Translation":
        if self.reading is None:
            return self
        reading = replace(self.reading, progress=progress)
        return Translation(self.decoder_start_id, self.label_smoothing, self.z_loss, reading)

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        batch = super().collate(examples, seed)
        if self.reading is None:
            return batch
        return self.reading.choose(batch, SequenceDraws.of(examples, seed))

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return super().losses(model, batch if self.reading is None else self.reading.apply(model, batch))

    def logits_at(self, model: nn.Module, batch: Batch, positions: Tensor) -> Tensor:
        # behind the true tokens, whatever was chosen for training
        return super().logits_at(model, without_targets(batch, DRAWS, NOISE), positions)

    def pairs(self, examples: Sequence[Example], seed: int) -> Pairs:
        return gather(examples, "input_ids"), gather(examples, "labels")


@dataclass(frozen=True)
class TranslationRecipe(BaseObjectiveRecipe):
    """Write the target text of a pair (Transformer, or recurrent layers)."""

    TERMS = {"translation": ("tokens of the translation", "translation")}
    model_class = TercetSeq2SeqForConditionalGeneration
    other_model_classes = (TercetRecurrentSeq2SeqForConditionalGeneration,)
    template = "end"
    reads_pairs = True

    kind: Literal["translation"]
    """Which objective this is."""
    label_smoothing: Smoothing = 0.1
    """Label smoothing: probability that is distributed over the whole vocabulary."""
    z_loss: ZLoss = 0.0
    """Weight of the z-loss, the square of the logarithm of the softmax's normalizer: 1e-4 in PaLM."""
    scheduled_sampling: ScheduledSamplingRecipe | None = None
    """If set, the decoder reads its own predictions at some positions, more of them as the run goes on."""
    input_noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that a position of the decoder reads a random token of the batch's targets."""

    def build(self, context: ObjectiveContext) -> Translation:
        start_id = context.required_start_id(self.kind)
        reads_truth = self.scheduled_sampling is None and self.input_noise == 0
        reading = None if reads_truth else DecoderReading(self.scheduled_sampling, self.input_noise)
        return Translation(start_id, self.label_smoothing, self.z_loss, reading)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> ParallelPairs:
        if not isinstance(corpus, tuple):
            raise unsuited(self.kind)
        tokenizer = context.tokenizer
        if codes := target_language(tokenizer):
            marks = ", ".join(tokenizer.convert_ids_to_tokens([*codes.values()]))
            raise ValueError(
                f"the tokenizer marks the language of a target ({marks}), but pairs of {self.kind} have no "
                f"such marks: use tercet finetune translation, which sets them"
            )
        closing = [required_token_id(tokenizer, "eos", self.kind)]
        return ParallelPairs(*corpus, context.sequence_length, closing)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        # the targets are read again for each pass that makes predictions
        whole = FullSequence(sequence_length, sequence_length, sequence_length)
        if self.scheduled_sampling is None:
            return whole
        return replace(whole, passes=self.scheduled_sampling.count_passes(sequence_length))

    def measure(
        self,
        source: ExampleSource,
        documents: Sequence[Documents],
        context: ObjectiveContext,
        control_tokens: Sequence[str],
    ) -> TranslationMeasure:
        assert isinstance(source, ParallelPairs)
        return TranslationMeasure.of(
            source, documents, context.tokenizer, context.sequence_length, control_tokens
        )

    def count_bytes(self, corpus: Corpus, source: ExampleSource) -> dict[str, int]:
        assert isinstance(source, ParallelPairs)
        return {"translation": int(source.target.document_bytes[source.documents].sum())}
