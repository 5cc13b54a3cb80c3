"""Sentence denoising: write a sentence from one vector of what deletion has left of it (TSDAE; Wang, Reimers
and Gurevych, 2021).

    sentence            [CLS] the cat sat on the mat [SEP]
    encoder reads       [CLS] cat on mat [SEP]                     60 % of the words are deleted
    decoder reads       [CLS] the cat sat on the mat               and the vector of what the encoder reads
    decoder predicts    the cat sat on the mat [SEP]

Every word is deleted by its own coin, with all of its tokens. Where none would be left, one word stays, each
with the same probability (as in the authors' code). The examples are single sentences. One that is longer
than `sequence_length` is cut.

An encoder that puts a sentence into one vector, and a decoder that has to write it from that vector alone
(TSDAE; Wang, Reimers and Gurevych, 2021, section 3).

    cat on mat  ->  encoder  ->  one vector  ->  cross-attention of the decoder  ->  the cat sat on the mat

The decoder reads nothing else of the encoder, so that the vector has to hold what the sentence says. Encoder
and decoder share all weights that both have; the decoder's cross-attention and the head of the vocabulary are
its own. With a single vector to attend to, attention has no choice: what it passes on is a linear function of
that vector.

Shapes: N packed tokens, S sentences, W words, M packed tokens of the decoder, C model width.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ...data.chunks import FullSequences
from ...data.corpus import TokenizedCorpus
from ...data.steps.examples import gather
from ...data.steps.objective import IGNORE, Batch, Example, Objective
from ...data.steps.packing import Ragged
from ...data.steps.static_shapes import POSITIONS
from ...data.steps.streams import two_streams
from ...data.tokenizers.special_tokens import is_special
from ...data.tokenizers.tokenizer import frame_ids
from ...modeling import (
    NeuralConfig,
    TercetDecoderConfig,
    TercetEncoderConfig,
    TercetEncoderForSentenceEmbedding,
    TercetPreTrainedModel,
)
from ...modeling.attention.packing import select_positions
from ...modeling.configuration_tercet import SHARED_FIELDS
from ...modeling.heads.losses import select_targets
from ...modeling.modeling_tercet_decoder import TercetDecoderModel
from ...modeling.pretrained import TercetLMHeadModel
from ...training.run_folder import MODEL
from ...training.token_objective import token_scores
from .masking import word_begins
from .randomness import SequenceDraws
from .recipes import (
    BaseObjectiveRecipe,
    Corpus,
    FullSequence,
    JointModel,
    ObjectiveContext,
    Rate,
    Trainable,
    share_parameters,
    single_text,
)
from .teacher_forcing import CorruptedTexts


class SentenceDecoder(TercetLMHeadModel):
    """A decoder that reads one vector for each sentence, and predicts its tokens."""

    config: TercetDecoderConfig
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.embed_tokens.weight"}

    def __init__(self, config: TercetDecoderConfig):
        super().__init__(config)
        self.model = TercetDecoderModel(config, has_cross_attention=True)
        self.build_lm_head(config)
        self.post_init()

    def forward(self, batch: Batch, vectors: Tensor) -> Tensor:
        """Compute the states (1, M, C) of what the decoder reads, given the sentences' vectors (S, C)."""
        return self.model(
            batch["decoder_input_ids"],
            position_ids=batch["decoder_position_ids"],
            encoder_hidden_states=vectors[None],
            use_cache=False,
            cu_seq_lens_q=batch["cu_seq_lens_q"],
            max_length_q=batch["max_length_q"],
            cu_seq_lens_k=torch.arange(len(vectors) + 1, dtype=torch.int32, device=vectors.device),
            max_length_k=1,
        ).last_hidden_state


class SentenceAutoencoder(JointModel):
    """An encoder of sentences with the decoder that it is trained by.

    Args:
        config: Configuration of the encoder; its `classifier_pooling` says what the vector of a sentence is.
    """

    def __init__(self, config: TercetEncoderConfig):
        encoder = TercetEncoderForSentenceEmbedding(config)
        super().__init__(encoder)
        self.encoder = encoder
        self.decoder = SentenceDecoder(decoder_config(config))
        # Buckets of distances mean others to a decoder, which looks back only.
        share_parameters(self.decoder.model, encoder.model, excluded=("relative_bias.",))
        self.decoder.tie_weights()
        self._no_split_modules = None  # blocks that share weights cannot be sharded one by one

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Sum the cross-entropy of the sentences' tokens; in evaluation, give their logits (1, M, V), too.

        Args:
            batch: Corrupted sentences for the encoder and whole ones for the decoder, with `labels` (1, M).
        """
        positions = batch.get(POSITIONS)
        states = select_positions(self.decoder(batch, self.embed(batch)), positions)
        labels = select_targets(batch["labels"], positions)
        loss, logits = self.decoder.compute_loss_and_logits(
            states, labels, 0, {"reduction": "sum"}, is_selected=positions is not None
        )
        assert loss is not None
        return loss, logits

    def embed(self, batch: Batch) -> Tensor:
        """Compute the vectors (S, C) of the encoder's sentences; they have any length, as in the paper."""
        outputs, _, texts = self.encoder.forward_base(
            batch["input_ids"],
            None,
            None,
            batch["position_ids"],
            None,
            cu_seq_lens_q=batch["cu_seq_lens_k"],
            max_length_q=batch["max_length_k"],
        )
        assert outputs.last_hidden_state is not None
        return self.encoder.pool(outputs.last_hidden_state, texts)


def decoder_config(config: TercetEncoderConfig) -> TercetDecoderConfig:
    return TercetDecoderConfig(**{name: deepcopy(getattr(config, name)) for name in SHARED_FIELDS})


TERM = "reconstruction"
"""The only term."""


class SentenceDenoising(Objective):
    """Write sentences from vectors of what is left of them; the term is `reconstruction`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, deletion_probability: float = 0.6):
        self.weights = {TERM: 1.0}
        self.deletion_probability = deletion_probability
        self.special = is_special(tokenizer)
        self.start_id = opening_id(tokenizer)

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        texts = gather(examples, "input_ids")
        ids = texts.values.astype(np.int64, copy=False)
        special = self.special[ids]
        begins = word_begins(examples, special)
        draws = SequenceDraws.of(examples, seed)
        is_kept = kept_tokens(begins, special, texts.edges, self.deletion_probability, draws)
        left = Ragged(ids[is_kept], np.add.reduceat(is_kept, texts.edges[:-1], dtype=np.int64))
        is_target = np.ones(len(ids), dtype=bool)
        is_target[texts.edges[:-1]] = False
        return two_streams(left, Ragged(ids[is_target], texts.lengths - 1), self.start_id)

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {TERM: (batch["labels"] != IGNORE).count_nonzero()}

    def predicted(self, batch: Batch) -> Tensor:
        return torch.arange(batch["labels"].shape[1])

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {TERM: model(batch)[0]}

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        _, logits = model(batch)
        return {TERM: token_scores(logits[0], batch["labels"][0])}


def kept_tokens(
    begins: np.ndarray, special: np.ndarray, edges: np.ndarray, probability: float, draws: SequenceDraws
) -> np.ndarray:
    """Delete words: return which tokens stay, (N,), special ones and at least a word of each sentence.

    The word with the largest number of its sentence stays whatever the number is: all words are equally
    likely to have it, also where no number is large enough to stay by itself.

    Args:
        begins: First token of each word (W,); special tokens are words of their own.
        special: Which tokens are special (N,).
        edges: First token of each sentence, and N (S + 1,).
        probability: With which a word is deleted.
        draws: Give every word a number.
    """
    first_words = begins.searchsorted(edges[:-1])
    numbers = draws.random(np.diff(first_words, append=len(begins)))
    numbers[special[begins]] = -1.0
    largest = np.maximum.reduceat(numbers, first_words)
    sentence = edges.searchsorted(begins, side="right") - 1
    stays = (numbers >= probability) | (numbers == largest[sentence]) | special[begins]
    return stays.repeat(np.diff(begins, append=len(special)))


def opening_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the token that opens a text, or say that there is none."""
    if not (opening := frame_ids(tokenizer)[0]):
        raise ValueError(
            "sentence_denoising needs the tokenizer's cls_token or bos_token, but both are None: add one "
            "(tokenizer.add_special_tokens({'cls_token': ...})) or train the tokenizer anew"
        )
    return opening[0]


def by_sentences(corpus: TokenizedCorpus) -> TokenizedCorpus:
    """View a corpus as if each of its sentences were a document; how many bytes these have is not known."""
    count = corpus.num_sentences
    return replace(
        corpus, document_offsets=np.arange(count + 1), document_bytes=np.zeros(count, dtype=np.int64)
    )


@dataclass(frozen=True)
class SentenceDenoisingRecipe(BaseObjectiveRecipe):
    """Write a sentence from one vector of what deletion has left of it (TSDAE)."""

    TERMS = {"reconstruction": ("tokens of the restored sentence", "other")}
    model_class = TercetEncoderForSentenceEmbedding
    saved = {MODEL: "encoder"}
    inheriting = ("encoder", "decoder")
    template = "pair"

    kind: Literal["sentence_denoising"]
    """Which objective this is."""
    deletion_probability: Rate = 0.6
    """Share of the words that are deleted from what the encoder reads."""
    pooling: Literal["mean", "first"] = "mean"
    """The vector of a sentence: the `mean` of its states, or that of its `first` token ([CLS])."""

    def build_model(self, config: NeuralConfig) -> SentenceAutoencoder:
        assert isinstance(config, TercetEncoderConfig)
        config.classifier_pooling = self.pooling
        return SentenceAutoencoder(config)

    def parts(
        self, model: Trainable, sequence_length: int
    ) -> Sequence[tuple[TercetPreTrainedModel, FullSequence]]:
        assert isinstance(model, SentenceAutoencoder)
        whole = self.full_sequence(sequence_length)
        return [
            (model.encoder, FullSequence(whole.read, 0, 0)),
            (model.decoder, FullSequence(whole.written, 0, whole.targets, source=1)),
        ]

    def build(self, context: ObjectiveContext) -> SentenceDenoising:
        return SentenceDenoising(context.tokenizer, self.deletion_probability)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> CorruptedTexts:
        sentences = by_sentences(single_text(corpus, self.kind))
        texts = FullSequences(sentences, context.sequence_length, *frame_ids(context.tokenizer))
        return CorruptedTexts(texts, self.expected_lengths(texts.lengths) + texts.lengths - 1)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        read = int(self.expected_lengths(np.array(sequence_length)))
        return FullSequence(read, sequence_length - 1, sequence_length - 1)

    def expected_lengths(self, lengths: np.ndarray) -> np.ndarray:
        """Estimate the lengths of sentences after deletion from those before, [CLS] and [SEP] included."""
        return np.rint(2 + (1 - self.deletion_probability) * (lengths - 2)).astype(np.int64)
