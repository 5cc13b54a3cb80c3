"""Small members of the family and a tokenizer for them: what the libraries around are given here.

Every test that bears the mark `ecosystem(LIBRARY, WHAT, member=...)` is a cell of the table in
docs/ecosystem.md, which lab/compatibility/ecosystem.py makes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import pre_tokenizers, processors
from torch import Tensor
from transformers import (
    DataCollatorForSeq2Seq,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    TrainingArguments,
)

from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetEncoderForMaskedLM,
    TercetSeq2SeqForConditionalGeneration,
)

from ..word_level import word_level

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """
A B C Yes No a all and bird boat book brown cat child cold day dog door end fast field fish fox good
green hat he her here his house how in is it jumps king lazy left light like long man moon never new
night no not of old on one open or over queen quick rain read red river road runs sang saw sea she
sky slow small snow song star stone sun tale tall that the then they this to told tree under was
water white wind with word yes . , ? ! :
"""
TEXTS = [
    "the quick brown fox jumps over the lazy dog .",
    "she saw a white bird .",
    "in the cold night the old king told his queen a long tale of snow and wind .",
    "rain !",
]
"""Sentences of different lengths."""

SIZES = {
    "vocab_size": len(SPECIAL_TOKENS) + len(WORDS.split()),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 2,
    "eos_token_id": 3,
    # Large weights, so that attention is far from uniform and mistakes show.
    "initializer_range": 0.3,
}
MODELS = {
    "encoder": TercetEncoderForMaskedLM,
    "decoder": TercetDecoderForCausalLM,
    "seq2seq": TercetSeq2SeqForConditionalGeneration,
}

PLAIN_TRAINING = {
    "optim": "sgd",
    "learning_rate": 0.5,
    "lr_scheduler_type": "constant",
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "disable_tqdm": True,
}
"""Arguments of trainers whose steps are those of a plain loop."""

LAYOUTS = {
    "modern": {"use_qk_norm": True, "attention_gate": "elementwise"},
    "classic": {
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
    "biased": {
        "position_embedding_type": "relative_bias",
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 6,
        "attention_gate": "headwise",
        "feed_forward_type": "plain",
        "hidden_act": "relu2",
        "tie_word_embeddings": False,
    },
    "sliding": {
        "position_embedding_type": "sinusoidal",
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 3,
        "scale_embedding": True,
    },
}
"""Fields of models that have little in common."""


@pytest.fixture(autouse=True)
def offline(monkeypatch) -> None:
    """Let nothing ask the Hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(params=MODELS)
def member(request) -> str:
    """Run a test for every member, unless it names its own."""
    return request.param


@pytest.fixture(scope="session")
def layouts() -> dict[str, dict]:
    """Return the fields of all layouts by their names."""
    return LAYOUTS


@pytest.fixture(params=LAYOUTS)
def layout(request) -> dict:
    """Run a test for every layout."""
    return LAYOUTS[request.param]


@pytest.fixture(scope="session")
def build() -> Callable[..., PreTrainedModel]:
    """Give the function that builds a small model by its member's name or its class, with random weights."""

    def build(model: str | type[PreTrainedModel], **fields) -> PreTrainedModel:
        torch.manual_seed(0)
        model_class: Any = MODELS[model] if isinstance(model, str) else model
        return model_class(model_class.config_class(**SIZES | fields)).eval()

    return build


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of words, which frames sentences as BERT does."""
    return build_tokenizer()


@pytest.fixture
def pair_tokenizer() -> PreTrainedTokenizerFast:
    """Return the same for an encoder, which tells the two texts of a pair apart by their segments."""
    return build_tokenizer(model_input_names=["input_ids", "token_type_ids", "attention_mask"])


def build_tokenizer(**options) -> PreTrainedTokenizerFast:
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return word_level(
        SPECIAL_TOKENS + WORDS.split(),
        split=pre_tokenizers.Whitespace(),
        template="[CLS] $A [SEP]",
        pair_template="[CLS] $A [SEP] $B:1 [SEP]:1",
        bos_token="[CLS]",
        eos_token="[SEP]",
        **dict(zip(names, SPECIAL_TOKENS, strict=True)),
        **options,
    )


@pytest.fixture
def writer(tokenizer) -> PreTrainedTokenizerFast:
    """Return the same tokenizer for a decoder: no frame, since a prompt goes on, and pads on the left."""
    tokenizer.backend_tokenizer.post_processor = processors.Sequence([])
    tokenizer.padding_side = "left"
    return tokenizer


@pytest.fixture
def texts() -> list[str]:
    """Return sentences of different lengths."""
    return list(TEXTS)


@pytest.fixture
def rows(tokenizer, texts):
    """Eight texts, the last five words of each its targets, so that micro-batches have ragged targets."""
    rows = tokenizer(texts + [f"{text} {text}" for text in texts], return_token_type_ids=False)["input_ids"]
    return [
        {"input_ids": ids, "labels": [-100] * max(1, len(ids) - 5) + ids[max(1, len(ids) - 5) :]}
        for ids in rows
    ]


@pytest.fixture
def arguments(tmp_path):
    """Give the function that says how to train: a step reads all rows, and their order does not matter."""

    def arguments(accumulation=1, kind=TrainingArguments, **options):
        sizes = {
            "max_steps": 2,
            "per_device_train_batch_size": 8 // accumulation,
            "gradient_accumulation_steps": accumulation,
        }
        return kind(output_dir=str(tmp_path / "trainer"), **PLAIN_TRAINING | sizes | options)

    return arguments


@pytest.fixture
def pad(tokenizer):
    """Give the function that builds the collator for a model."""
    return lambda model: DataCollatorForSeq2Seq(tokenizer, model if model.config.is_encoder_decoder else None)


@pytest.fixture
def saved(tmp_path, build, tokenizer) -> Callable[..., Path]:
    """Return the function that saves a small model with its tokenizer, and says where."""

    def save(model: str | type[PreTrainedModel], tokenizer=tokenizer, **fields) -> Path:
        for part in (build(model, **fields), tokenizer):
            part.save_pretrained(tmp_path / "saved")
        return tmp_path / "saved"

    return save


@pytest.fixture
def prompt() -> Tensor:
    """Return seven tokens, (1, 7)."""
    return torch.tensor([[2, 17, 90, 33, 61, 8, 50]])


@pytest.fixture(scope="session")
def batch_for() -> Callable[..., dict[str, Tensor]]:
    """Return the function that makes what a member reads: ids and a mask (B, T), and perhaps targets."""

    def batch_for(member: str, size: int = 2, length: int = 7) -> dict[str, Tensor]:
        ids = torch.randint(5, 100, (size, length), generator=torch.Generator().manual_seed(length))
        mask = torch.ones_like(ids)
        mask[0, -2:] = 0
        batch = {"input_ids": ids, "attention_mask": mask}
        return batch | {"decoder_input_ids": ids[:, 1:].flip(0)} if member == "seq2seq" else batch

    return batch_for


@pytest.fixture
def next_scores() -> Callable[..., Tensor]:
    """Return the function that scores what may follow, in one pass over everything: (B, V)."""
    return scores_of_next


@pytest.fixture
def write() -> Callable[..., Tensor]:
    """Return the function that generates by the definition."""
    return write_by_definition


def scores_of_next(model: PreTrainedModel, prompt: Tensor, written: Tensor) -> Tensor:
    is_decoder = not model.config.is_encoder_decoder
    inputs = {"input_ids": written} if is_decoder else {"input_ids": prompt, "decoder_input_ids": written}
    return model(**inputs).logits[:, -1]


@torch.no_grad()
def write_by_definition(model, prompt, length, processors=(), ends=(), is_sampled=False) -> Tensor:
    """Write token after token behind one prompt, or, as a decoder beside an encoder, behind a pad."""
    written = torch.zeros_like(prompt[:, :1]) if model.config.is_encoder_decoder else prompt
    for _ in range(length):
        scores = LogitsProcessorList(processors)(written, scores_of_next(model, prompt, written))
        probabilities = scores.softmax(-1)
        token = probabilities.multinomial(1) if is_sampled else probabilities.argmax(-1, keepdim=True)
        written = torch.cat((written, token), dim=1)
        if token in ends:
            break
    return written
