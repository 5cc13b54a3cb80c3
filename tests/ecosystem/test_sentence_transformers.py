"""sentence-transformers around our models: its vectors and scores are those of a plain computation."""

import pytest
import torch
from datasets import Dataset
from torch.nn import functional as F
from torch.optim import SGD
from torch.testing import assert_close

from tercet.modeling import TercetEncoderForSequenceClassification

from .heads import STACKS

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

POOLINGS = {
    "mean": lambda states: states.mean(1),
    "cls": lambda states: states[:, 0],
    "max": lambda states: states.amax(1),
    "lasttoken": lambda states: states[:, -1],
}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

both_stacks = pytest.mark.parametrize("member", STACKS)


@pytest.fixture
def embedder(saved):
    """Give the function that makes sentence vectors of a small stack."""

    def embedder(member, pooling="mean"):
        transformer = Transformer(str(saved(STACKS[member])))
        pool = Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)
        return SentenceTransformer(modules=[transformer, pool, Normalize()], device="cpu")

    return embedder


@pytest.mark.ecosystem("sentence-transformers", "`Transformer` and `Pooling` modules, `encode`")
@pytest.mark.parametrize("pooling", POOLINGS)
@both_stacks
def test_vectors_are_pooled_states(member, pooling, embedder, build, tokenizer, texts):
    model = embedder(member, pooling)
    together = model.encode(texts, batch_size=4, convert_to_tensor=True)
    for text, vector in zip(texts, together, strict=True):
        states = build(STACKS[member])(tokenizer(text, return_tensors="pt")["input_ids"]).last_hidden_state
        assert_close(vector, F.normalize(POOLINGS[pooling](states), dim=-1)[0], **CLOSE)


@pytest.mark.ecosystem("sentence-transformers", "`save_pretrained`, `SentenceTransformer(path)`")
@both_stacks
def test_a_saved_model_gives_the_same_vectors(member, embedder, texts, tmp_path):
    model = embedder(member)
    model.save_pretrained(str(tmp_path / "vectors"))
    again = SentenceTransformer(str(tmp_path / "vectors"), device="cpu")
    assert_close(again.encode(texts), model.encode(texts), rtol=0, atol=0)
    assert_close(again.similarity(*[again.encode(texts)] * 2).diagonal(), torch.ones(4), **CLOSE)


@pytest.mark.ecosystem(
    "sentence-transformers", "`SentenceTransformerTrainer`, `MultipleNegativesRankingLoss`"
)
@both_stacks
def test_training_steps_as_a_plain_loop(member, embedder, build, tokenizer, texts, tmp_path):
    model, plain = embedder(member), build(STACKS[member]).train()
    pairs = {"anchor": texts[:3], "positive": texts[1:]}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "trainer"), max_steps=1, per_device_train_batch_size=3, optim="sgd",
        learning_rate=0.5, lr_scheduler_type="constant", save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    SentenceTransformerTrainer(
        model, arguments, Dataset.from_dict(pairs), loss=MultipleNegativesRankingLoss(model)
    ).train()

    vectors = {}
    for side, sentences in pairs.items():
        rows = [plain(tokenizer(text, return_tensors="pt")["input_ids"]) for text in sentences]
        vectors[side] = F.normalize(torch.cat([row.last_hidden_state.mean(1) for row in rows]), dim=-1)
    scores = 20.0 * vectors["anchor"] @ vectors["positive"].T
    F.cross_entropy(scores, torch.arange(3)).backward()
    torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
    SGD(plain.parameters(), lr=0.5).step()
    assert_close(model[0].model.state_dict(), plain.state_dict(), **CLOSE)


@pytest.mark.ecosystem("sentence-transformers", "`CrossEncoder`", member="encoder")
def test_pairs_are_scored_by_the_classifier(saved, build, pair_tokenizer, texts):
    folder = saved(TercetEncoderForSequenceClassification, pair_tokenizer, num_labels=1)
    ranker = CrossEncoder(str(folder), device="cpu")
    model = build(TercetEncoderForSequenceClassification, num_labels=1)
    scores = ranker.predict([(texts[1], text) for text in texts], batch_size=4, convert_to_tensor=True)
    for text, score in zip(texts, scores, strict=True):
        logits = model(**pair_tokenizer(texts[1], text, return_tensors="pt")).logits
        assert_close(score, logits[0, 0].sigmoid(), **CLOSE)
