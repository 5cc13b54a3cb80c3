"""An encoder that puts a sentence into one vector, and a decoder that has to write it from that vector alone
(TSDAE; Wang, Reimers and Gurevych, 2021, section 3).

    cat on mat  ->  encoder  ->  one vector  ->  cross-attention of the decoder  ->  the cat sat on the mat

The decoder reads nothing else of the encoder, so that the vector has to hold what the sentence says. Encoder
and decoder share all weights that both have; the decoder's cross-attention and the head of the vocabulary are
its own. With a single vector to attend to, attention has no choice: what it passes on is a linear function of
that vector.

Legend: N packed tokens of the encoder, M packed tokens of the decoder, S sentences, C model width.
"""

from copy import deepcopy

import torch
from torch import Tensor

from ..modeling import TercetDecoderConfig, TercetEncoderConfig, TercetEncoderForSentenceEmbedding
from ..modeling.configuration_tercet import SHARED_FIELDS
from ..modeling.modeling_tercet_decoder import TercetDecoderModel
from ..modeling.packing import select_positions
from ..modeling.pretrained_tercet import TercetLMHeadModel
from ..modeling.targets import select_targets
from ..training.objective import Batch
from ..training.static_shapes import POSITIONS
from .joint_model import JointModel, share_parameters


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
        config: Of the encoder; its `classifier_pooling` says what the vector of a sentence is.
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
        """Give the vectors (S, C) of the sentences that the encoder reads, of any length, as in the paper."""
        outputs, sequences = self.encoder.forward_base(
            batch["input_ids"],
            None,
            None,
            batch["position_ids"],
            None,
            cu_seq_lens_q=batch["cu_seq_lens_k"],
            max_length_q=batch["max_length_k"],
        )
        assert outputs.last_hidden_state is not None
        return self.encoder.pool(outputs.last_hidden_state, sequences)


def decoder_config(config: TercetEncoderConfig) -> TercetDecoderConfig:
    """Describe a decoder with the blocks of an encoder."""
    config.update_from_rope_parameters()
    return TercetDecoderConfig(**{name: deepcopy(getattr(config, name)) for name in SHARED_FIELDS})
