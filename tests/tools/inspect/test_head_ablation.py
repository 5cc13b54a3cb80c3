"""Removing a head equals zeros in its slice of the output projection, in every layout and by every kernel."""

from contextlib import contextmanager

import pytest
import torch
from transformers import AlbertConfig, AlbertForMaskedLM
from transformers.pytorch_utils import Conv1D

from tercet.tools.inspect.head_ablation import ablate_heads, ablation_effects, divergence
from tercet.tools.inspect.inspected_model import find_attention

from .conftest import MODELS, OURS, build, packed, padded, translated

HEADS = {0: [1, 3], 1: [0]}
PACKED = ("encoder", "decoder", "llama", "gpt2")


@contextmanager
def zeroed(model, heads):
    """Write zeros into the slices of the output projections that read some heads: the definition."""
    layers = find_attention(model)
    kept = {number: layers[number].output.weight.detach().clone() for number in heads}
    with torch.no_grad():
        for number, chosen in heads.items():
            layer = layers[number]
            weight = layer.output.weight if isinstance(layer.output, Conv1D) else layer.output.weight.T
            for head in chosen:
                weight[head * layer.head_dim : (head + 1) * layer.head_dim] = 0
    yield
    with torch.no_grad():
        for number, weight in kept.items():
            layers[number].output.weight.copy_(weight)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("name", MODELS)
def test_ablation_equals_zeroed_slices_of_padded_texts(name, kernel, texts):
    model, batch = build(name, kernel), padded(texts, name)
    with torch.no_grad():
        whole = model(**batch).logits
        with ablate_heads(model, HEADS):
            without = model(**batch).logits
        with zeroed(model, HEADS):
            expected = model(**batch).logits
        assert torch.equal(model(**batch).logits, whole)
    torch.testing.assert_close(without, expected)
    assert (without - whole).abs().max() > 0.01


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("name", PACKED)
def test_ablation_equals_zeroed_slices_of_packed_texts(name, kernel, texts):
    model = build(name, kernel)
    batch, rows = packed(texts, name), padded(texts, name)
    with torch.no_grad(), ablate_heads(model, HEADS):
        without = model(**batch).logits
        of_rows = model(**rows).logits[rows["attention_mask"].bool()]
    with torch.no_grad(), zeroed(model, HEADS):
        torch.testing.assert_close(without, model(**batch).logits)
    torch.testing.assert_close(without[0], of_rows, rtol=1e-4, atol=1e-4)


def test_ablation_holds_in_training_where_texts_are_packed_inside(texts):
    model, batch = build("encoder").train(), padded(texts, "encoder", labels=True)
    gradients = []
    for context in (ablate_heads, zeroed):
        model.zero_grad()
        with context(model, HEADS):
            model(**batch).loss.backward()
        gradients.append(model.get_input_embeddings().weight.grad.clone())
    torch.testing.assert_close(*gradients)


def test_heads_of_a_shared_module_are_removed_from_all_layers(texts):
    torch.manual_seed(0)
    model = AlbertForMaskedLM(AlbertConfig(**OURS, embedding_size=16)).eval()
    with torch.no_grad():
        with ablate_heads(model, {0: [1]}):
            without = model(**padded(texts, "albert")).logits
        with zeroed(model, {0: [1]}):
            torch.testing.assert_close(without, model(**padded(texts, "albert")).logits)


@pytest.mark.parametrize("name", ["seq2seq", "bart", "t5"])
def test_a_target_without_a_mask_has_the_tokens_that_labels_say(name, texts):
    """Not those of the source, which here has as many positions."""
    model, batch = build(name), translated(build(name), texts)
    unmasked = {key: value for key, value in batch.items() if key != "decoder_attention_mask"}
    effects = ablation_effects(model, [batch], divergence)
    torch.testing.assert_close(ablation_effects(model, [unmasked], divergence), effects)


def test_effects_are_differences_of_losses_and_divergences(texts):
    model, batch = build("decoder"), padded(texts, "decoder", labels=True)
    effects = ablation_effects(model, [batch, batch])
    moved = ablation_effects(model, [batch], divergence)
    with torch.no_grad():
        before = model(**batch)
        with zeroed(model, {1: [3]}):
            after = model(**batch)
    assert float(effects[1][3]) == pytest.approx(float(after.loss - before.loss), abs=1e-5)
    log, other = before.logits.log_softmax(-1), after.logits.log_softmax(-1)
    expected = (log.exp() * (log - other)).sum(-1)[batch["attention_mask"].bool()].mean()
    assert float(moved[1][3]) == pytest.approx(float(expected), rel=1e-4)
    assert all((each > 0).all() for each in moved)


@pytest.mark.parametrize(
    ("heads", "message"),
    [({2: [0]}, "attention module 2 is to be ablated, but there are 2"), ({0: [4]}, "head 4 of attention")],
)
def test_a_head_that_is_not_there_is_refused(heads, message):
    with pytest.raises(ValueError, match=message), ablate_heads(build("bert"), heads):
        pass


def test_heads_that_were_not_removed_are_told(texts):
    model = build("bert")
    layer = find_attention(model)[0]
    weight = layer.output
    layer.module.forward = lambda x, *_, **__: (torch.zeros_like(x), None)
    parent = model.bert.encoder.layer[0].attention.output
    parent.forward = lambda x, residual: torch.nn.functional.linear(x, weight.weight) + residual
    with (
        torch.no_grad(),
        pytest.raises(ValueError, match="heads were not removed"),
        ablate_heads(model, {0: [1]}),
    ):
        model(**padded(texts, "bert"))


def test_losses_need_labels_and_divergences_classes(texts):
    batch = padded(texts, "bert")
    with pytest.raises(ValueError, match="no loss: give batches with `labels`"):
        ablation_effects(build("bert"), [batch])
    with pytest.raises(ValueError, match="no logits of several classes"):
        ablation_effects(build("bert").bert, [batch], divergence)
