"""Tiny models, Tercet's and stock, with large weights, and a batch of texts for each: padded and packed."""

from typing import Any

import pytest
import torch
from tokenizers import pre_tokenizers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)

from ...stock_models import SIZES, stock_class, stock_config
from ...word_level import word_level

WORDS = 40
COMMON = {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
COMMON |= {"initializer_range": 0.3, "max_position_embeddings": 64}
OURS = SIZES | COMMON
MEMBERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "encoder": (TercetEncoderForMaskedLM, TercetEncoderConfig, {}),
    "decoder": (TercetDecoderForCausalLM, TercetDecoderConfig, {"num_key_value_heads": 2}),
    "seq2seq": (TercetSeq2SeqForConditionalGeneration, TercetSeq2SeqConfig, {"decoder_start_token_id": 0}),
}
OF_STOCK: dict[str, dict[str, Any]] = {
    "bert": {},
    "gpt2": {},
    "llama": {"num_key_value_heads": 2},
    "neox": {},
    "distilbert": {},
    "modernbert": {},
    "bart": {"decoder_start_token_id": 2, "init_std": 0.3},
    "t5": {"decoder_start_token_id": 0},
}
MODELS = [*MEMBERS, *OF_STOCK]
"""All have 2 layers of 4 heads, each 8 wide."""

LENGTHS = (5, 9, 3)


def build(name: str, kernel: str = "sdpa", seed: int = 0, **fields: Any) -> PreTrainedModel:
    """Build a model with random weights."""
    if name in MEMBERS:
        model_class, config_class, own = MEMBERS[name]
        config = config_class(**OURS | own | fields)
    else:
        model_class, config = stock_class(name), stock_config(name, **COMMON | OF_STOCK[name] | fields)
    config._attn_implementation = kernel
    torch.manual_seed(seed)
    return model_class(config).eval()


@pytest.fixture(scope="session")
def texts() -> list[Tensor]:
    """Random texts, (T,) each."""
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(3, WORDS, (length,), generator=generator) for length in LENGTHS]


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of a few words."""
    words = [
        "animal",
        "because",
        "cross",
        "did",
        "it",
        "low",
        "not",
        "street",
        "the",
        "The",
        "too",
        "was",
        "wide",
        ".",
    ]
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "bos", "eos", "unk")}
    return word_level([*roles.values(), *words], split=pre_tokenizers.BertPreTokenizer(), **roles)


def padded(texts: list[Tensor], name: str, *, labels: bool = False) -> dict[str, Tensor]:
    """Lay texts out as a padded batch (B, T); a sequence-to-sequence model writes them backwards."""
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    batch = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    target = ids
    if name in ("seq2seq", "bart", "t5"):
        target = torch.nn.utils.rnn.pad_sequence([text.flip(0) for text in texts], batch_first=True)
        batch |= {"decoder_input_ids": target, "decoder_attention_mask": (target != 0).long()}
    return batch | ({"labels": target.masked_fill(target == 0, -100)} if labels else {})


def packed(texts: list[Tensor], name: str, *, labels: bool = False) -> dict[str, Any]:
    """Lay texts out as one packed row (1, N), told apart by positions that restart."""
    stream = torch.cat(texts)[None]
    batch = {
        "input_ids": stream,
        "position_ids": torch.cat([torch.arange(len(text)) for text in texts])[None],
    }
    targets = stream.clone()
    if name in ("decoder", "gpt2", "llama"):
        batch["use_cache"] = (
            False  # behind a cache, stock models would take restarting positions for one text
        )
        # The first token of each text is nobody's next one.
        targets[batch["position_ids"] == 0] = -100
    return batch | ({"labels": targets} if labels else {})


def translated(model: PreTrainedModel, texts: list[Tensor]) -> dict[str, Tensor]:
    """Pair texts with those of other lengths, as collators do."""
    source, target = (
        torch.nn.utils.rnn.pad_sequence(side, batch_first=True) for side in (texts, texts[::-1])
    )
    labels = target.masked_fill(target == 0, -100)
    ids: Tensor = model.prepare_decoder_input_ids_from_labels(labels)  # pyright: ignore
    masks = {"attention_mask": (source != 0).long(), "decoder_attention_mask": (target != 0).long()}
    return {"input_ids": source, "decoder_input_ids": ids, "labels": labels} | masks
