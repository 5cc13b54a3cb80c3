"""What `gpu.py` measures of fine-tuning and of vectors of texts, beside the plain way with stock models."""

from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from cases import SPECIAL, EncoderCase, without_text
from peers import padded
from sides import ROW_MULTIPLE, SIDES, Pass, Side, as_they_are, stock_pass
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
)

from tercet.data.steps.objective import Example
from tercet.finetune.tasks.objectives import SingleLabelObjective
from tercet.modeling import TercetEncoderForSequenceClassification
from tercet.tools.embed.embedding import load_embedder
from tercet.training.devices.precision import choose_precision

SIZE = 32
"""Texts of a batch of sentence-transformers, unless it is told another number."""


@dataclass(frozen=True)
class ClassificationCase(EncoderCase):
    """BERT learns which of two labels a pair has."""

    model_class = TercetEncoderForSequenceClassification

    def objective(self) -> Any:
        """Build what `tercet finetune` learns."""
        return SingleLabelObjective()

    def stock(self) -> PreTrainedModel:
        """Build BERT with its head."""
        return BertForSequenceClassification(
            BertConfig(
                **self.sizes(), hidden_dropout_prob=self.dropout, attention_probs_dropout_prob=self.dropout
            )
        )

    def example(self, length: int, rng: np.random.Generator) -> Example:
        """Draw a pair and its label."""
        pair = super().example(length, rng)
        label = pair.pop("next_sentence_label")
        return pair | {"labels": [label]}


def prepare_stock_classifier(case: ClassificationCase, device: torch.device) -> Pass:
    """Build what Trainer trains with `bf16` and `group_by_length`."""
    with device:
        model = case.stock()
    batches = case.grouped_batches()
    multiple = ROW_MULTIPLE.get(device.type, 1)
    rows = [
        padded(each | {"labels": each["input_ids"]}, 0, multiple) | {"labels": each["labels"]}
        for each in batches
    ]
    moved = [{name: tensor.to(device) for name, tensor in batch.items()} for batch in rows]
    return stock_pass(model, moved, device, is_autocast=choose_precision("auto", device) == "bf16")


class VectorsCase(EncoderCase):
    """Vectors of texts, from their words to numbers on the host."""

    def write(self, folder: str) -> list[str]:
        """Write a stock model and a tokenizer, and return the texts."""
        roles = {token.strip("[]").lower(): token for token in SPECIAL}
        tokenizer = without_text(self.vocab_size, SPECIAL, roles)
        tokenizer.backend_tokenizer.pre_tokenizer = WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
        tokenizer.save_pretrained(folder)
        BertModel(BertConfig(**self.sizes())).save_pretrained(folder)
        return tokenizer.batch_decode([each["input_ids"] for each in self.examples()])


def prepare_vectors(case: VectorsCase, device: torch.device, *, is_stock: bool) -> Pass:
    """Build what `tercet embed` does, or what sentence-transformers does, in bfloat16: means of length 1."""
    with TemporaryDirectory() as folder:
        texts = sorted(case.write(folder), key=len)
        if not is_stock:
            return partial(load_embedder(folder, precision="bf16").embed, texts)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = nn.Module.to(BertModel.from_pretrained(folder, dtype=torch.bfloat16), device).eval()

    @torch.inference_mode()
    def embed() -> list[Tensor]:
        vectors = []
        for first in range(0, len(texts), SIZE):
            rows = tokenizer(texts[first : first + SIZE], padding=True, return_tensors="pt").to(device)
            mask = rows["attention_mask"][..., None]
            states = model(**rows).last_hidden_state
            vectors.append(F.normalize((states * mask).sum(1) / mask.sum(1), dim=-1).float().cpu())
        return vectors

    return embed


FINETUNING = {
    "tercet": SIDES["tercet"],
    "stock": Side(prepare_stock_classifier, "auto", retains_heap=True, products=as_they_are),
}

VECTORS = {
    name: Side(
        partial(prepare_vectors, is_stock=name == "stock"), "bf16", retains_heap=True, products=as_they_are
    )
    for name in ("tercet", "stock")
}
