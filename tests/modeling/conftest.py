"""Small members of the family, in every variant that matters, and ragged batches for them."""

import pytest
import torch
from torch import Tensor

from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetEncoderForReplacedTokenDetection,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.attention import dot_product, packed

from ..architectures import ARCHITECTURES
from .ragged import VOCABULARY, Ragged, ragged

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
LINEAR_HALF = {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}
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
    "t5": {
        "position_embedding_type": "relative_bias",
        # With so few, distances of the small batches share buckets, too.
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 6,
        "feed_forward_type": "plain",
        "hidden_act": "relu",
    },
    "electra": {
        "embedding_size": 20,
        "embedding_norm": True,
        "position_embedding_type": "learned",
        "head_transform": True,
    },
    "sliding": {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 2,
        "rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_theta": 10.0}},
        "norm_type": "layer_norm",
        "embedding_norm": True,
        "first_norm": False,
    },
    "sliding_t5": {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 3,
        "position_embedding_type": "relative_bias",
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 6,
        "head_dim": 16,
    },
    "alibi": {"position_embedding_type": "alibi", "num_attention_heads": 6, "head_dim": 8},
    "sliding_alibi": {"position_embedding_type": "alibi", "num_key_value_heads": 2, "sliding_window": 3},
    "sliding_neox": {
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 3,
        "rope_parameters": {
            "full_attention": LINEAR_HALF,
            "sliding_attention": LINEAR_HALF | {"rope_theta": 10.0},
        },
        "norm_placement": "parallel",
    },
    "strided": {"layer_types": ["strided_attention", "full_attention"], "attention_stride": 2},
    "big_bird": {
        "layer_types": ["big_bird_attention", "full_attention"],
        "attention_block_size": 2,
        "attention_window_blocks": 1,
        "attention_global_tokens": 1,
        "attention_random_blocks": 1,
    },
    "offset": {"position_embedding_type": "learned", "position_offset": 2, "norm_placement": "pre"},
    "neox": {
        "norm_type": "layer_norm",
        "norm_placement": "parallel",
        "norm_bias": True,
        "rope_parameters": {"partial_rotary_factor": 0.5},
        "attention_bias": True,
        "tie_word_embeddings": False,
    },
    "llama": {
        "attention_bias": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 0.2,
            "high_freq_factor": 2.0,
            "original_max_position_embeddings": 16,
        },
    },
    "qwen": {
        "num_key_value_heads": 2,
        "head_dim": 16,
        "use_qk_norm": True,
        "attention_bias": True,
        "attention_out_bias": False,
    },
    "primer": {
        "num_key_value_heads": 2,
        "use_qk_norm": True,
        "attention_gate": "headwise",
        "feed_forward_type": "plain",
        "hidden_act": "relu2",
    },
    "gated": {
        "attention_gate": "elementwise",
        "attention_bias": True,
        "head_dim": 16,
        "hidden_act": "gelu",
        "position_embedding_type": "relative_bias",
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 6,
    },
}
NOT_PARALLEL = {name: {"norm_placement": "pre"} for name in ("neox", "sliding_neox")}
"""What a variant is of, where a block also reads an encoder."""
MODELS = {
    "encoder": TercetEncoderForMaskedLM,
    "decoder": TercetDecoderForCausalLM,
    "seq2seq": TercetSeq2SeqForConditionalGeneration,
}
TASKS = [
    architecture
    for kind in ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
    for architecture in ARCHITECTURES
    if architecture.__name__.endswith(kind)
] + [TercetEncoderForReplacedTokenDetection]


def build(member: str, variant: str = "modern", kernel: str = "sdpa", **fields):
    """Build a small member with its language head, with random weights, in evaluation mode."""
    return build_architecture(MODELS[member], variant, kernel, **fields)


def build_architecture(architecture, variant: str = "modern", kernel: str = "sdpa", **fields):
    """Build a small model with random weights, biases and norms included, in evaluation mode."""
    torch.manual_seed(0)
    reads_encoder = architecture.config_class is TercetSeq2SeqConfig
    instead = NOT_PARALLEL.get(variant, {}) if reads_encoder else {}
    config = architecture.config_class(
        **SIZES | VARIANTS[variant] | instead | fields, attn_implementation=kernel
    )
    if architecture is TercetDecoderForMaskedLM and config.position_embedding_type == "relative_bias":
        pytest.skip("the masked reading refuses a bias that is learned for one direction")
    return perturbed(architecture(config)).eval()


def perturbed(model):
    """Move the parameters that start at zero or one, so that none is without effect."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def examples_for(architecture) -> dict[str, Tensor]:
    """Four padded texts of different lengths, with the labels that a model learns from, if it learns."""
    name = architecture.__name__
    mask = (torch.arange(7) < torch.tensor([7, 4, 5, 3])[:, None]).long()
    ids = torch.randint(3, VOCABULARY, mask.shape, generator=torch.Generator().manual_seed(0)) * mask
    if "MultipleChoice" in name:
        ids, mask = torch.stack((ids, ids // 2), 1), mask[:, None].expand(-1, 2, -1)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if name.endswith("Model"):
        return inputs | ({"decoder_input_ids": ids.flip(0)} if "Seq2Seq" in name else {})
    if "QuestionAnswering" in name:
        return inputs | {"start_positions": torch.arange(4) % 2, "end_positions": torch.tensor([6, 3, 2, 2])}
    if "TokenClassification" in name or "ReplacedToken" in name:
        return inputs | {"labels": (ids % 2).masked_fill(mask == 0, -100)}
    if any(kind in name for kind in ("SequenceClassification", "MultipleChoice", "NextSentence")):
        return inputs | {"labels": torch.arange(4) % 2}
    pairs = {"next_sentence_label": torch.arange(4) % 2} if "PreTraining" in name else {}
    return inputs | {"labels": ids.masked_fill(mask == 0, -100)} | pairs


@pytest.fixture
def builder():
    """Give the function that builds small members."""
    return build


@pytest.fixture
def task_builder():
    """Give the function that builds small models of any class."""
    return build_architecture


@pytest.fixture(params=TASKS, ids=lambda architecture: architecture.__name__)
def task(request):
    """Run a test for every model with the head of a task."""
    return request.param


@pytest.fixture(params=ARCHITECTURES, ids=lambda architecture: architecture.__name__)
def architecture(request):
    """Run a test for every model, unless it names its own."""
    return request.param


@pytest.fixture
def examples():
    """Give the function that makes what a model reads and learns from."""
    return examples_for


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


@pytest.fixture
def lengths_by_blocks(monkeypatch):
    """Collect the longest of the sequences of each call that computes by blocks."""
    seen = []

    def spy(query, *arguments):
        seen.append(query.shape[1])
        return dot_product.block_sparse_attention(query, *arguments)

    monkeypatch.setattr(packed, "block_sparse_attention", spy)
    return seen
