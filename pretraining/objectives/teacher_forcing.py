"""Learning to write a target sequence from a source sequence, each token given the true ones before it.

    encoder reads    source </s>
    decoder reads    <start> t1 t2 ... tn        and predicts    t1 t2 ... tn </s>

Translation, span corruption and denoising differ in what source and target are, and in nothing else.

Legend: E texts, N packed tokens of the encoder, M packed tokens of the decoder, n targets.
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from ...data.chunks import FullSequences
from ...data.steps.examples import FixedExamples, PackedExamples
from ...data.steps.objective import Batch, Example
from ...data.steps.streams import two_streams
from ...training.token_objective import TokenObjective

Pairs = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]
"""Sources and targets, token ids."""


class CorruptedTexts(FixedExamples):
    """Texts that are both source and target, of which only the corruption differs; they count both sides.

    Args:
        texts: The same in every epoch.
        lengths: Tokens of source and target together (E,).
    """

    def __init__(self, texts: FullSequences, lengths: np.ndarray):
        assert len(texts) == len(lengths)
        self.texts = texts
        self.lengths = lengths
        self.left_out = texts.left_out

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Example:
        return self.texts[index]

    def pack(self, indices: np.ndarray) -> PackedExamples:
        return self.texts.pack(indices)


class TeacherForcing(TokenObjective):
    """Predict each token of a target from the source and the tokens before it. Abstract: see its subclasses.

    Label smoothing (Szegedy et al., 2016, section 7; Vaswani et al., 2017, section 5.4) replaces the target,
    one at the target token, by

        (1 - eps) * one-hot + eps / V        everywhere, the target included, and so sums to 1.

    With V = 6 and eps = 0.1 that is 0.9167 for the target and 0.0167 for each other. An example often
    shown, 0.9 for the target and 0.2 for each of five others, sums to 1.9 and is wrong: it is no
    distribution. Evaluation never smooths, so that its loss is a likelihood, and perplexity its exponential.

    Args:
        term: Name of the only term.
        decoder_start_id: What the decoder reads first; the model's `decoder_start_token_id`.
        label_smoothing: eps, from 0 (none) up to, but not including, 1.
        z_loss: See `TokenObjective`.
    """

    def __init__(self, term: str, decoder_start_id: int, label_smoothing: float = 0.0, z_loss: float = 0.0):
        super().__init__(term, label_smoothing, z_loss)
        self.decoder_start_id = decoder_start_id

    @abstractmethod
    def pairs(self, examples: Sequence[Example], seed: int) -> Pairs:
        """Make sources and targets, token ids that end with the end-of-sequence token."""

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # `labels` (1, M) are not shifted: a token is predicted where the one before it is read
        sources, targets = self.pairs(examples, seed)
        return two_streams(sources, targets, self.decoder_start_id)
