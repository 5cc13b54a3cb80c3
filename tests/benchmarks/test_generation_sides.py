"""The models that write against each other are equal, and write the same."""

import pytest
import torch


@pytest.fixture(params=["4x256", "12x768-batch-8"])
def writing(request, module):
    return module("generation_sides").WRITING_CASES[request.param].shrunk()


def test_texts_in_float32_are_the_same(writing, module):
    texts = module("generation_sides").compare_texts(writing)
    assert texts["num_new_tokens"] == 13
    assert texts["same_tokens"]["stock"] == texts["same_tokens"]["tercet"] == 1
    assert texts["same_tokens"].keys() == module("generation_sides").WRITERS.keys()


def test_a_fifth_of_a_text_is_given(module):
    case = module("generation_sides").WRITING_CASES["4x256-batch-8"]
    assert case.prompts().shape == (8, 32)
    assert case.num_new_tokens == 128


@pytest.mark.parametrize("name", ["stock", "stock-bf16", "tercet", "tercet-bf16"])
def test_every_side_writes(writing, name, module, monkeypatch):
    writers, texts = module("generation_sides"), []
    write = writers.WritingCase.write
    monkeypatch.setattr(
        writers.WritingCase, "write", lambda case, model: texts.append((model.dtype, write(case, model)))
    )
    writers.WRITERS[name].prepare(writing, torch.device("cpu"))()
    ((dtype, text),) = texts
    assert dtype == (torch.bfloat16 if name.endswith("bf16") else torch.float32)
    assert text.shape == (4, 13)
