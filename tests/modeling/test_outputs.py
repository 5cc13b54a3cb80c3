"""What every model takes and returns, as transformers words it.

`output_positions`: the last layer computes the states that are needed, and no others.
"""

import inspect

import pytest
import torch
from torch.testing import assert_close
from transformers.utils import output_capturing
from transformers.utils.generic import ModelOutput

from tercet.modeling import (
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetSeq2SeqForConditionalGeneration,
    TercetSeq2SeqModel,
)
from tercet.modeling.heads.losses import IGNORE

from ..tolerances import CLOSE
from .conftest import TASKS, build_architecture, examples_for

RECORDED = {"output_hidden_states": True, "output_attentions": True}


def test_ids_come_first_and_are_the_main_input(architecture):
    names = list(inspect.signature(architecture.forward).parameters)[1:]
    assert names[:2] == ["input_ids", "attention_mask"]
    assert architecture.main_input_name == "input_ids"


def test_segments_are_read_by_every_model(architecture, task_builder, examples):
    """`Trainer` drops columns that `forward` does not name, and `generate` refuses them."""
    assert "token_type_ids" in inspect.signature(architecture.forward).parameters
    model, inputs = task_builder(architecture, type_vocab_size=2), examples(architecture)
    types = torch.ones_like(inputs["input_ids"])
    assert (model(**inputs)[0] != model(**inputs, token_type_ids=types)[0]).any()
    if model.can_generate():
        prompts = {"input_ids": inputs["input_ids"][:1], "token_type_ids": types[:1]}
        cached, anew = (model.generate(**prompts, max_new_tokens=3, use_cache=use) for use in (True, False))
        assert torch.equal(cached, anew)


def test_a_tuple_holds_what_a_dictionary_does(architecture, task_builder, examples):
    model, inputs = task_builder(architecture), examples(architecture)
    by_name = model(**inputs, **RECORDED)
    in_order = model(**inputs, **RECORDED, return_dict=False)
    assert type(in_order) is tuple
    assert_same(in_order, by_name.to_tuple())


def assert_same(left, right) -> None:
    """Compare tensors, and tuples of them; caches are other objects each time."""
    assert isinstance(left, type(right)) or isinstance(right, ModelOutput)
    if isinstance(left, tuple):
        for parts in zip(left, right, strict=True):
            assert_same(*parts)
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right)


def test_an_evaluation_repeats_itself(architecture, task_builder, examples):
    model, inputs = task_builder(architecture, dropout=0.5, attention_dropout=0.5), examples(architecture)
    assert_same(model(**inputs).to_tuple(), model(**inputs).to_tuple())


def test_rows_of_a_batch_do_not_touch_each_other(architecture, task_builder, examples):
    model = task_builder(architecture)
    inputs = {name: value for name, value in examples(architecture).items() if name.endswith(("ids", "mask"))}
    if architecture.__name__.endswith("ConditionalGeneration"):
        inputs["decoder_input_ids"] = inputs["input_ids"].flip(0)
    together = model(**inputs)
    name = next(name for name in together if name.endswith(("logits", "state")))
    for row in range(4):
        alone = model(**{name: value[row : row + 1] for name, value in inputs.items()})
        is_read = is_real(inputs["attention_mask"][row], alone[name][0], "Seq2Seq" in architecture.__name__)
        assert_close(together[name][row][is_read], alone[name][0][is_read], **CLOSE)


def is_real(mask: torch.Tensor, result: torch.Tensor, reads_target: bool):
    """Index the results of real tokens, or all if they are not those of the tokens of this text."""
    return mask.bool() if mask.dim() == 1 and len(result) == len(mask) and not reads_target else ...


@pytest.mark.parametrize("variant", ["modern", "bert", "vaswani", "t5"])
def test_vectors_of_tokens_stand_for_the_tokens(architecture, variant, task_builder, examples):
    model, inputs = task_builder(architecture, variant), examples(architecture)
    expected = model(**inputs)
    for name in ("input_ids", "decoder_input_ids"):
        if (
            name in inputs
            and f"{name.removesuffix('input_ids')}inputs_embeds"
            in inspect.signature(architecture.forward).parameters
        ):
            table = (model.get_decoder() if "decoder" in name else model).get_input_embeddings()
            inputs[f"{name.removesuffix('input_ids')}inputs_embeds"] = table(inputs.pop(name))
    found = model(**inputs)
    for left, right in zip(found.to_tuple(), expected.to_tuple(), strict=True):
        assert_same(left, right)


def test_gradients_of_all_that_is_recorded_can_be_kept(architecture, task_builder, examples):
    model, inputs = task_builder(architecture, kernel="eager"), examples(architecture)
    outputs = model(**inputs, **RECORDED)
    recorded = [
        each for name, value in outputs.items() if name.endswith(("states", "attentions")) for each in value
    ]
    assert len(recorded) == (12 if model.config.is_encoder_decoder else 5)
    for each in recorded:
        each.retain_grad()
    result = outputs[0] if "loss" in outputs else outputs[0].square()
    result.sum().backward()
    unread = [each for each in recorded if each.grad is None or not each.grad.any()]
    assert not unread


def test_recordings_are_made_once(architecture, task_builder, examples, monkeypatch):
    """Were two models in one another to record the same, each would get but a part of it."""
    depth, deepest = 0, 0
    collected = output_capturing._active_collector

    class Counting:
        def get(self):
            return collected.get()

        def set(self, value):
            nonlocal depth, deepest
            depth += 1
            deepest = max(depth, deepest)
            return collected.set(value)

        def reset(self, token):
            nonlocal depth
            depth -= 1
            collected.reset(token)

    monkeypatch.setattr(output_capturing, "_active_collector", Counting())
    task_builder(architecture)(**examples(architecture), **RECORDED)
    assert deepest == 1


@pytest.mark.parametrize("kept", [1, 3, torch.tensor([0, 2, 6])], ids=str)
def test_only_logits_that_are_kept_are_computed(member, kept, builder, batch):
    model = builder(member)
    ids, mask = batch.padded()
    inputs = {"input_ids": ids, "attention_mask": mask}
    inputs |= {"decoder_input_ids": ids} if member == "seq2seq" else {}
    logits = model(**inputs).logits
    expected = logits[:, -kept:] if isinstance(kept, int) else logits[:, kept]
    assert_close(model(**inputs, logits_to_keep=kept).logits, expected, **CLOSE)
    inputs |= {"labels": ids, "logits_to_keep": kept}  # as in Liger kernels' issue 694
    assert_close(model.train()(**inputs).loss, model.eval()(**inputs).loss, **CLOSE)


@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("layout", ["padded", "packed"])
@torch.no_grad()
def test_output_positions_have_the_states_that_they_have_among_all(member, variant, layout, builder, batch):
    model = builder(member, variant).model
    ids, mask = batch.padded()
    inputs = batch.packed() if layout == "packed" else {"input_ids": ids, "attention_mask": mask}
    positions = torch.tensor([0, 3, 4, 11, 12, 20])
    everything = model(**inputs).last_hidden_state.flatten(0, 1)
    assert_close(
        model(**inputs, output_positions=positions).last_hidden_state, everything[positions][None], **CLOSE
    )


@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_output_positions_are_found_where_pads_are_removed(member, builder, batch):
    """Training removes pads, whose states are zeros."""
    model, (ids, mask) = builder(member).model.train(), batch.padded("left")
    positions = torch.arange(ids.numel())
    inputs = {"input_ids": ids, "attention_mask": mask} | (
        {"use_cache": False} if member == "decoder" else {}
    )
    everything = model(**inputs).last_hidden_state.flatten(0, 1)
    found = model(**inputs, output_positions=positions).last_hidden_state
    assert_close(found[0], everything, **CLOSE)
    assert not found[0, mask.flatten() == 0].any()


PREDICT_TOKENS = [
    TercetEncoderForMaskedLM,
    TercetEncoderForPreTraining,
    TercetDecoderForCausalLM,
    TercetDecoderForMaskedLM,
]


def few_targets(architecture) -> dict:
    """Some texts, with a label in three."""
    inputs = examples_for(architecture)
    is_target = torch.arange(inputs["labels"].numel()).view_as(inputs["labels"]) % 3 == 1
    return inputs | {"labels": inputs["labels"].masked_fill(~is_target, IGNORE)}


@pytest.mark.parametrize("architecture", PREDICT_TOKENS, ids=lambda architecture: architecture.__name__)
def test_training_computes_the_last_layer_where_it_is_read(architecture):
    """Loss and gradients are those of all states, which evaluation computes."""
    model, inputs = build_architecture(architecture), few_targets(architecture)
    computed = []
    last = model.model.layers[-1].feed_forward
    last.register_forward_hook(lambda module, arguments, output: computed.append(output.shape[:2].numel()))
    results = []
    for is_training in (False, True):
        model.train(is_training).zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        results.append((loss.detach(), {name: each.grad for name, each in model.named_parameters()}))
    assert_close(*results, **CLOSE)
    is_target = inputs["labels"] != IGNORE
    is_target[:, 0] &= "Encoder" in architecture.__name__  # nothing precedes a decoder's first token
    num_first = len(is_target) * (architecture is TercetEncoderForPreTraining)
    assert computed == [is_target.numel(), num_first + int(is_target.sum())]


@pytest.mark.parametrize(
    "architecture",
    [*PREDICT_TOKENS, TercetSeq2SeqForConditionalGeneration],
    ids=lambda architecture: architecture.__name__,
)
def test_named_positions_have_their_logits_and_their_loss(architecture):
    """Positions without a target count nothing."""
    model, inputs = build_architecture(architecture), examples_for(architecture)
    if architecture is TercetSeq2SeqForConditionalGeneration:
        inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    positions = torch.tensor([1, 2, 5, 9, 11])
    is_named = torch.zeros(inputs["labels"].numel(), dtype=torch.bool)
    is_named[positions + (architecture is TercetDecoderForCausalLM)] = True
    labels = inputs["labels"].masked_fill(~is_named.view_as(inputs["labels"]), IGNORE)
    everything = model(**inputs | {"labels": labels})
    found = model(**inputs, output_positions=positions)
    logits = "prediction_logits" if architecture is TercetEncoderForPreTraining else "logits"
    assert_close(found[logits][0], everything[logits].flatten(0, 1)[positions], **CLOSE)
    assert_close(found.loss, everything.loss, **CLOSE)


OF_ALL_STATES = [
    *TASKS,
    TercetSeq2SeqModel,
]


@pytest.mark.parametrize("architecture", OF_ALL_STATES, ids=lambda architecture: architecture.__name__)
def test_models_that_need_all_states_refuse_output_positions(architecture):
    inputs = examples_for(architecture)
    with pytest.raises(
        ValueError,
        match=r"output_positions are given to .*, which needs all hidden states: leave them out",
    ):
        build_architecture(architecture)(**inputs, output_positions=torch.tensor([0, 3]))


def test_a_decoder_beside_an_encoder_refuses_output_positions(builder):
    model = builder("seq2seq").model.decoder
    ids, source = torch.ones(2, 3, dtype=torch.long), torch.randn(2, 4, 32)
    with pytest.raises(ValueError, match="output_positions are given to a stack that reads an encoder"):
        model(ids, encoder_hidden_states=source, output_positions=torch.tensor([0]))
