"""Small members of the family, in every variant that matters, and ragged batches for them."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)

VOCABULARY = 61
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    # Large weights, so that attention is far from uniform and mistakes show.
    "initializer_range": 0.3,
}
VARIANTS = {
    "modern": {},
    "grouped": {"num_key_value_heads": 2},
    "bert": {
        "position_embedding_type": "learned",
        "norm_type": "layer_norm",
        "norm_placement": "post",
        "norm_bias": True,
        "embedding_norm": True,
        "feed_forward_type": "plain",
        "hidden_act": "gelu",
        "attention_bias": True,
        "mlp_bias": True,
        "head_bias": True,
        "head_transform": True,
    },
    "vaswani": {
        "position_embedding_type": "sinusoidal",
        "norm_type": "layer_norm",
        "norm_placement": "post",
        "feed_forward_type": "plain",
        "hidden_act": "relu",
        "scale_embedding": True,
    },
    "unordered": {"position_embedding_type": "none", "hidden_act": "gelu_new", "tie_word_embeddings": False},
    "sliding": {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 2,
        "local_rope_theta": 10.0,
        "norm_type": "layer_norm",
        "embedding_norm": True,
        "first_norm": False,
    },
    "offset": {"position_embedding_type": "learned", "position_offset": 2, "norm_placement": "pre"},
}
CONFIGURATIONS = {
    "encoder": TercetEncoderConfig,
    "decoder": TercetDecoderConfig,
    "seq2seq": TercetSeq2SeqConfig,
}
MODELS = {
    "encoder": TercetEncoderForMaskedLM,
    "decoder": TercetDecoderForCausalLM,
    "seq2seq": TercetSeq2SeqForConditionalGeneration,
}


def build(member: str, variant: str = "modern", kernel: str = "sdpa", **fields):
    """Build a small member with random weights, biases and norms included, in evaluation mode."""
    torch.manual_seed(0)
    config = CONFIGURATIONS[member](**SIZES | VARIANTS[variant] | fields, attn_implementation=kernel)
    return perturbed(MODELS[member](config)).eval()


def perturbed(model):
    """Move the parameters that start at zero or one, so that none is without effect."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model


@dataclass
class Ragged:
    """The same sequences, padded left or right, alone, and packed."""

    sequences: list[Tensor]

    def padded(self, side: str = "right", pad: int = 0) -> tuple[Tensor, Tensor]:
        """Ids and mask, (B, T), with pads on one side."""
        mask = [torch.ones_like(ids) for ids in self.sequences]
        return padded(self.sequences, pad, side), padded(mask, 0, side)

    def packed(self) -> dict:
        """Ids (1, N), restarting positions and cumulative lengths."""
        lengths = torch.tensor([len(ids) for ids in self.sequences])
        return {
            "input_ids": torch.cat(self.sequences)[None],
            "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
            "cu_seq_lens_q": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
        }


def padded(rows: list[Tensor], value: int, side: str) -> Tensor:
    """Rows of different lengths as one tensor."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value, padding_side=side)


def ragged(*lengths: int, seed: int = 0) -> Ragged:
    """Random sequences of the given lengths."""
    generator = torch.Generator().manual_seed(seed)
    return Ragged([torch.randint(3, VOCABULARY, (length,), generator=generator) for length in lengths])


@pytest.fixture
def builder():
    """Give the function that builds small members."""
    return build


@pytest.fixture
def batch() -> Ragged:
    """Five sequences of four different lengths."""
    return ragged(7, 3, 9, 3, 1)


@pytest.fixture
def targets() -> Ragged:
    """As many target sequences, of other lengths."""
    return ragged(4, 8, 2, 5, 6, seed=1)


@pytest.fixture
def pretraining_model():
    """Give a small encoder with both heads of BERT."""
    torch.manual_seed(0)
    return perturbed(TercetEncoderForPreTraining(TercetEncoderConfig(**SIZES | VARIANTS["bert"]))).eval()


@pytest.fixture(params=VARIANTS)
def variant(request) -> str:
    """Run a test for every variant, unless it names its own."""
    return request.param


@pytest.fixture(params=MODELS)
def member(request) -> str:
    """Run a test for every member, unless it names its own."""
    return request.param
