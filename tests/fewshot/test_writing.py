"""What models write: greedily, up to what ends a text."""

import json
import shutil

import pytest
import torch

from tercet.fewshot.prompts.boundary import SpecialTokenPolicy
from tercet.fewshot.scoring.score_cache import AnswerCache
from tercet.fewshot.scoring.writing import Writer

from ..reported import fewshot
from .conftest import read


def test_models_write_greedily_whatever_else_they_would(recipe_of, saved, tmp_path):
    copied = shutil.copytree(saved("gpt2"), tmp_path / "changed")
    settings = json.loads((copied / "generation_config.json").read_text())
    rules = {"repetition_penalty": 9.0, "no_repeat_ngram_size": 1, "min_length": 99, "do_sample": True}
    (copied / "generation_config.json").write_text(json.dumps(settings | rules))
    texts = []
    for model in (saved("gpt2"), copied):
        items = read(fewshot(recipe_of("generation", [model]), overwrite=True))[1]
        texts.append([item["written"] for item in items])
    assert texts[0] == texts[1]
    assert any(texts[0])


@pytest.mark.parametrize("name", ["gpt2", "roberta"])
def test_what_is_written_is_the_likeliest_by_the_models_own_positions(name, subject):
    """RoBERTa's begin behind the id of the pad, of which `generate` knows nothing."""
    asked = subject(name)
    contexts, expected = [(290,), (120, 250, 230)], []
    for context in contexts:
        ids = list(context)
        for _ in range(6):
            with torch.inference_mode():
                ids.append(int(asked.model(torch.tensor([ids])).logits[0, -1].argmax()))
        expected.append(asked.tokenizer.decode(ids[len(context) :], skip_special_tokens=True))
    assert all(expected)
    assert Writer(asked, AnswerCache(), (), 6, 100).write(contexts) == expected


@pytest.mark.parametrize("sentinel", [True, False])
def test_an_answer_behind_a_sentinel_ends_at_the_next(sentinel, subject):
    asked = subject("t5")
    ids = asked.tokenizer.get_vocab()
    encoder = asked.prompts(SpecialTokenPolicy(sentinel=sentinel))
    assert encoder.lead == (asked.model.config.decoder_start_token_id, ids["<extra_id_0>"])[: 1 + sentinel]
    script = asked.tokenizer("cat", add_special_tokens=False)["input_ids"]
    length = len(script)
    script += [ids["<extra_id_1>"], *script * 2]
    said = iter(script)

    def say(module, inputs, logits):
        return torch.nn.functional.one_hot(torch.tensor(next(said)), logits.shape[-1]).expand_as(logits) * 1.0

    stop = ("\n", "<extra_id_1>") if sentinel else ("\n",)
    writer = Writer(asked, AnswerCache(), stop, 2 * length + 1, 100, encoder.lead)
    hook = asked.model.lm_head.register_forward_hook(say)
    (written,) = writer.write([encoder.context_of("the")])
    hook.remove()
    assert written.replace(" ", "") == ("cat" if sentinel else "catcat")


def written_of(said, asked) -> list[str]:
    """Let a model say tokens whatever it reads; return the text that is written."""
    following = iter(said)

    def say(module, inputs, logits):
        ids = torch.tensor(next(following))
        return torch.nn.functional.one_hot(ids, logits.shape[-1]).expand_as(logits) * 1.0

    hook = asked.model.lm_head.register_forward_hook(say)
    written = Writer(asked, AnswerCache(), ("\n",), 5, 100, ()).write([(5, 6, 7)])
    hook.remove()
    return written


def test_a_text_ends_where_the_tokenizer_says_too(subject, monkeypatch):
    asked = subject("gpt2")
    monkeypatch.setattr(asked.model.generation_config, "eos_token_id", None)
    end = asked.tokenizer.eos_token_id
    said = [*asked.tokenizer(" cat")["input_ids"], end, 9, 9, 9]
    assert written_of(said, asked) == [" cat"]


def test_an_end_that_is_no_special_token_does_not_belong_to_the_text(subject, monkeypatch):
    asked = subject("gpt2")
    (end,) = asked.tokenizer("?")["input_ids"]
    monkeypatch.setattr(asked.model.generation_config, "eos_token_id", [asked.tokenizer.eos_token_id, end])
    said = [*asked.tokenizer(" cat")["input_ids"], end]
    assert written_of(said, asked) == [" cat"]


def test_a_model_that_computes_no_numbers_writes_nothing(subject):
    asked = subject("gpt2")
    writer = Writer(asked, AnswerCache(), ("\n",), 4, 100, ())
    hook = asked.model.lm_head.register_forward_hook(lambda module, inputs, logits: logits * torch.nan)
    with pytest.raises(ValueError, match="computes what is no number"):
        writer.write([(5, 6, 7)])
    hook.remove()


@pytest.mark.parametrize("name", ["bart", "seq2seq", "llama", "roberta"])
def test_a_text_does_not_depend_on_those_written_beside_it(name, subject):
    """BART counts positions from the left edge, whatever the mask says (transformers#19581)."""
    asked = subject(name)
    encoder = asked.prompts(SpecialTokenPolicy())
    contexts = [encoder.context_of(text) for text in ("the cat", "a", "the big dog sat under the fish " * 3)]

    def write(chosen):
        return Writer(asked, AnswerCache(), ("\n",), 8, 1000, encoder.lead).write(chosen)

    alone = [write([context])[0] for context in contexts]
    assert any(alone)
    assert write(contexts) == alone
