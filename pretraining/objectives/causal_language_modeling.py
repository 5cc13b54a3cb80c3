"""Causal language modeling: predict every token from those before it (Radford et al., 2019, section 2).

    log p(x) = sum over t of log p(x_t | x_1 ... x_{t-1})

Legend: N packed tokens of the batch, n targets.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from ...data.chunks import FullSequences
from ...data.corpus import TokenizedCorpus
from ...data.steps.examples import ExampleSource, gather
from ...data.steps.objective import IGNORE, Batch, Example
from ...data.steps.packing import Ragged
from ...data.steps.streams import one_stream
from ...data.tokenizers.tokenizer import frame_ids
from ...modeling import TercetDecoderForCausalLM
from ...training.token_objective import TokenObjective
from .recipes import BaseObjectiveRecipe, Corpus, FullSequence, ObjectiveContext, ZLoss, single_text


class NextTokenPrediction(TokenObjective):
    """Predict the next token of a decoder's input. Abstract: a kind says what the input is.

    The labels are the input itself: the model shifts them, and the first token of a sequence, which nothing
    precedes, is no target.
    """

    @abstractmethod
    def sequences(self, examples: Sequence[Example], seed: int) -> Ragged:
        """Make the token ids that the model reads."""

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        batch = one_stream(self.sequences(examples, seed))
        batch["labels"] = batch["input_ids"].clone()
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {self.term: (batch["position_ids"] > 0).count_nonzero()}

    def goals(self, batch: Batch) -> Tensor:
        # each token is predicted at the position before it
        labels = batch["labels"].masked_fill(batch["position_ids"] == 0, IGNORE)
        return F.pad(labels[0, 1:], (0, 1), value=IGNORE)


class CausalLanguageModeling(NextTokenPrediction):
    """Predict the next token of a text; the term is `clm`."""

    noise = "none"

    def __init__(self, z_loss: float = 0.0):
        super().__init__("clm", z_loss=z_loss)

    def sequences(self, examples: Sequence[Example], seed: int) -> Ragged:
        return gather(examples, "input_ids")


@dataclass(frozen=True)
class CausalLanguageModelingRecipe(BaseObjectiveRecipe):
    """Predict the next token (GPT)."""

    TERMS = {"clm": ("next tokens", "text-generation")}
    model_class = TercetDecoderForCausalLM
    template = "plain"

    kind: Literal["causal_language_modeling"]
    """Which objective this is."""
    z_loss: ZLoss = 0.0
    """Weight of the z-loss, the square of the logarithm of the softmax's normalizer: 1e-4 in PaLM."""

    def build(self, context: ObjectiveContext) -> CausalLanguageModeling:
        return CausalLanguageModeling(self.z_loss)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> FullSequences:
        return causal_sequences(single_text(corpus, self.kind), context)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        return FullSequence(sequence_length, 0, sequence_length - 1)

    def count_bytes(self, corpus: Corpus, source: ExampleSource) -> dict[str, int]:
        assert isinstance(source, FullSequences)
        return {"clm": bytes_of_sequences(single_text(corpus, self.kind), source)}


def causal_sequences(corpus: TokenizedCorpus, context: ObjectiveContext) -> FullSequences:
    """Cut a text as decoders read it: sequences have a first token, and documents an end.

    The end of a document is a target as its tokens are. So every token and every end is one, exactly once,
    where a beginning-of-sequence token stands before each sequence, however short: also the end of a document
    that it alone is left of, or of whose text the tokenizer leaves no token, whose probability is that of its
    end. Without such a token, the first token of a sequence is no target, and one of a single token has none.
    """
    begin, end = frame_ids(context.tokenizer)
    return FullSequences(
        corpus,
        context.sequence_length,
        begin,
        (),
        context.isolate_documents,
        document_end_ids=end,
        fewest_tokens=1 if begin else 2,
    )


def bytes_of_sequences(corpus: TokenizedCorpus, sequences: FullSequences) -> int:
    """Count the bytes that the targets of sequences stand for: all the text's where all tokens are targets.

    What ends a document is a target that stands for no byte. Without a beginning-of-sequence token, the first
    token of each sequence is no target: the bytes are then an estimate, in proportion to the tokens.
    """
    num_bytes = int(corpus.document_bytes.sum())
    if len(sequences.prefix):
        return num_bytes
    untold = len(sequences) + sum(left_out.pieces for left_out in sequences.left_out)
    return round(num_bytes * max(corpus.num_tokens - untold, 0) / max(corpus.num_tokens, 1))
