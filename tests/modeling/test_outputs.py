"""What every model takes and returns, as transformers words it."""

import inspect

import pytest
import torch
from torch.testing import assert_close
from transformers.utils import output_capturing
from transformers.utils.generic import ModelOutput

RECORDED = {"output_hidden_states": True, "output_attentions": True}
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


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
