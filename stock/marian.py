"""Marian (Junczys-Dowmunt et al., 2018), the Transformer of 2017 behind the OPUS-MT translators."""

from ..modeling.configuration_tercet import TercetSeq2SeqConfig
from .architecture import Architecture, Counterpart, Field
from .bart import FIELDS, FIXED, HEAD, LAYERS, has_head_bias
from .weights import Dropped

COMPUTED = Dropped("sines and cosines, which ours computes")

MARIAN = Architecture(
    model_type="marian",
    config=TercetSeq2SeqConfig,
    fields=FIELDS
    | {
        "vocab_size": Field(
            lambda stock: stock.vocab_size,
            lambda config: {"vocab_size": config.vocab_size, "decoder_vocab_size": config.vocab_size},
        )
    },
    fixed=FIXED | {"position_embedding_type": "sinusoidal_split", "norm_placement": "post"},
    required={"share_encoder_decoder_embeddings": True},
    weights=LAYERS | {"encoder.embed_positions.weight": COMPUTED, "decoder.embed_positions.weight": COMPUTED},
    counterparts=(
        Counterpart("MarianModel", "TercetSeq2SeqModel"),
        Counterpart("MarianMTModel", "TercetSeq2SeqForConditionalGeneration", HEAD),
    ),
    prefix="model.",
    by_weights={"head_bias": has_head_bias},
)
