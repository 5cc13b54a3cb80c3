"""Vectors of texts: pooled states of length 1 in every layout, as sentence-transformers would make them."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tercet.modeling import (
    TercetDecoderForSentenceEmbedding,
    TercetDecoderModel,
    TercetEncoderForSentenceEmbedding,
    TercetEncoderModel,
)
from tercet.modeling.heads.pooling import find_sequences

STACKS = {
    TercetEncoderForSentenceEmbedding: TercetEncoderModel,
    TercetDecoderForSentenceEmbedding: TercetDecoderModel,
}
POOLINGS = {
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
    "mean": lambda states: states.mean(0),
}
MODES = {"first": "cls", "last": "lasttoken", "mean": "mean"}
"""What sentence-transformers calls them."""

CLOSE = {"rtol": 1e-4, "atol": 2e-5}

every_embedder = pytest.mark.parametrize("embedder", STACKS)
every_pooling = pytest.mark.parametrize("pooling", POOLINGS)


@every_embedder
@every_pooling
@pytest.mark.parametrize("training", [False, True])
def test_every_layout_gives_the_pooled_states_of_each_text(embedder, pooling, training, task_builder, batch):
    model = task_builder(embedder, "bert", classifier_pooling=pooling).train(training)
    states = [model.model(ids[None]).last_hidden_state[0] for ids in batch.sequences]
    expected = F.normalize(torch.stack([POOLINGS[pooling](each) for each in states]), dim=-1)
    for side in ("right", "left"):
        ids, mask = batch.padded(side)
        assert_close(model(ids, mask).sentence_embeddings, expected, **CLOSE)
    stream = batch.packed()
    for told in ({"cu_seq_lens_q", "position_ids"}, {"cu_seq_lens_q"}, {"position_ids"}):
        inputs = {name: stream[name] for name in {"input_ids", *told}}
        assert_close(model(**inputs).sentence_embeddings, expected, **CLOSE)


@every_embedder
@every_pooling
def test_vectors_are_those_of_sentence_transformers(embedder, pooling, task_builder, batch):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    model, (ids, mask) = task_builder(embedder, classifier_pooling=pooling), batch.padded()
    features = {"token_embeddings": model.model(ids, mask).last_hidden_state, "attention_mask": mask}
    expected = Normalize()(Pooling(32, pooling_mode=MODES[pooling])(features))["sentence_embedding"]
    assert_close(model(ids, mask).sentence_embeddings, expected, **CLOSE)


@every_embedder
def test_a_pretrained_model_gives_vectors_without_new_weights(embedder, task_builder, tmp_path):
    pretrained = task_builder(STACKS[embedder])
    pretrained.save_pretrained(tmp_path)
    loaded, report = embedder.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert set(loaded.state_dict()) == {f"model.{name}" for name in pretrained.state_dict()}


@every_embedder
def test_recordings_and_half_precision_come_along(embedder, task_builder, batch):
    model, (ids, mask) = task_builder(embedder), batch.padded()
    outputs = model(ids, mask, output_hidden_states=True, output_attentions=True)
    assert (len(outputs.hidden_states), len(outputs.attentions)) == (3, 2)
    halved = model.bfloat16()(ids, mask).sentence_embeddings
    assert halved.dtype == torch.bfloat16
    assert_close(halved.float(), outputs.sentence_embeddings, rtol=0.1, atol=0.1)
    assert_close(halved.float().norm(dim=-1), torch.ones(5), rtol=1e-2, atol=1e-2)


@every_embedder
def test_vectors_compile_without_graph_breaks(embedder, task_builder, batch):
    torch._dynamo.reset()
    model, (ids, mask) = task_builder(embedder, classifier_pooling="mean").train(), batch.padded()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(compiled(ids, mask).sentence_embeddings, model(ids, mask).sentence_embeddings, **CLOSE)


@every_embedder
def test_a_text_without_any_token_has_no_direction_and_no_effect(embedder, task_builder, batch):
    model, (ids, mask) = task_builder(embedder, classifier_pooling="mean").train(), batch.padded()
    mask[4] = 0
    vectors = model(ids, mask).sentence_embeddings
    (vectors @ vectors.mT).sum().backward()
    assert vectors[4].abs().max() == 0
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)


@pytest.mark.parametrize("bounds", [None, torch.tensor([0, 3000])], ids=["padded", "packed"])
def test_sums_of_long_texts_are_beyond_float16_but_their_means_are_not(bounds):
    states = torch.full((1, 3000, 4), 30.0)
    with torch.autocast("cpu", torch.float16):
        for each in (states, states.half()):
            mean = find_sequences(each, None, None, bounds).mean(each)
            assert torch.equal(mean, each[:, 0])
