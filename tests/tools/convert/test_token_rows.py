"""Tokens keep their rows under another tokenizer, and new ones begin with the mean of their pieces."""

from copy import deepcopy

import pytest
import torch
from torch.testing import assert_close

from tercet.data.tokenizers.new_terms import add_terms
from tercet.data.tokenizers.token_rows import rows_between
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling.saved.inheritance import inherit

from .test_inheritance import MODELS, build

TEXT = ["The chemical chemo kinase skin, the cat sat on a mat: chemistry kin skin. Therapy! A chemist."] * 5


@pytest.fixture(scope="module")
def tokenizers():
    """Train tokenizers that spell words in different ways, one of them of less text."""
    kinds = {"wordpiece": 90, "byte_bpe": 330, "unigram": 60}
    made = {
        kind: train_tokenizer(TEXT, kind, size, lowercase=kind == "wordpiece") for kind, size in kinds.items()
    }
    return made | {"smaller": train_tokenizer(["a cat sat on a mat"] * 5, "wordpiece", 40, lowercase=True)}


def extended(tokenizer):
    """Add a word and a phrase."""
    new = deepcopy(tokenizer)
    add_terms(new, ["chemokine", "skin mat"])
    return new


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in ("characters", "elmo")])
def test_old_tokens_keep_rows_and_logits_and_a_term_begins_with_the_mean_of_its_pieces(kind, tokenizers):
    old, new = tokenizers["wordpiece"], extended(tokenizers["wordpiece"])
    num_old, padded = len(old), len(new) + 3
    source, model = build(kind, num_old, seed=0), build(kind, padded, seed=1)
    assert inherit(model, source, rows=rows_between(old, new, num_old, padded)) == []
    pieces = {term: old(term, add_special_tokens=False)["input_ids"] for term in ("chemokine", "skin mat")}
    parameters, changed = dict(source.named_parameters()), 0
    for name, parameter in model.named_parameters():
        before = parameters[name]
        assert torch.equal(parameter[: len(before)], before)
        if parameter.shape != before.shape:
            changed += 1
            for term, ids in pieces.items():
                assert_close(parameter[new.get_vocab()[term]], before[ids].mean(0))
            assert_close(parameter[len(new) :], before.mean(0, keepdim=True).expand_as(parameter[len(new) :]))
    assert changed
    ids = torch.tensor([old("the cat sat on a mat", add_special_tokens=False)["input_ids"]])
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if source.config.is_encoder_decoder else {})
    before, after = source(**inputs), model(**inputs)
    name = "logits" if "logits" in before else "prediction_logits"
    assert_close(after[name][..., : before[name].shape[-1]], before[name], rtol=1e-6, atol=1e-6)


def test_rows_follow_tokens_to_other_ids_and_fewer_ones(tokenizers):
    old, new = tokenizers["wordpiece"], tokenizers["smaller"]
    rows = rows_between(old, new, len(old), len(new))
    table = torch.randn(len(old), 4)
    arranged, known = rows.apply(table), old.get_vocab()
    same = [token for token in new.get_vocab() if token in known]
    assert any(known[token] != new.get_vocab()[token] for token in same)
    for token in same:
        assert torch.equal(arranged[new.get_vocab()[token]], table[known[token]])


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float32])
def test_rows_of_single_tokens_are_exact_and_means_are_taken_in_float32(tokenizers, half):
    old, new = tokenizers["byte_bpe"], extended(tokenizers["byte_bpe"])
    table = torch.randn(len(old), 4).to(half)
    arranged = rows_between(old, new, len(old), len(new)).apply(table)
    assert arranged.dtype == half
    assert torch.equal(arranged[: len(old)], table)
    ids = old(" chemokine", add_special_tokens=False)["input_ids"]
    assert torch.equal(arranged[new.get_vocab()["Ġchemokine"]], table[ids].float().mean(0).to(half))


@pytest.mark.parametrize(("source", "target"), [("wordpiece", "byte_bpe"), ("byte_bpe", "unigram")])
def test_the_same_text_is_the_same_token_however_it_is_spelled(tokenizers, source, target):
    old, new = tokenizers[source], tokenizers[target]
    rows = rows_between(old, new, len(old), len(new))
    spelled = {"wordpiece": ("{}", "##{}"), "byte_bpe": ("Ġ{}", "{}"), "unigram": ("▁{}", "{}")}
    found = 0
    for text in ("skin", "kin", "cat", "chem", "a", "s", "i"):
        for theirs, ours in zip(spelled[source], spelled[target], strict=True):
            number, former = (
                each.get_vocab().get(how.format(text)) for each, how in ((new, ours), (old, theirs))
            )
            if number is not None and former is not None:
                found += 1
                assert tuple(rows.pieces[number]) == (former,)
    assert found > 2
    for role in ("pad", "mask", "cls", "sep"):
        assert tuple(rows.pieces[getattr(new, f"{role}_token_id")]) == (getattr(old, f"{role}_token_id"),)


def test_words_with_capitals_begin_as_what_an_uncased_tokenizer_reads(tokenizers):
    old = tokenizers["wordpiece"]
    new = train_tokenizer(TEXT, "wordpiece", 120)
    rows, ids, numbers = rows_between(old, new, len(old), len(new)), old.get_vocab(), new.get_vocab()
    for token, former in (("The", ["the"]), ("Therapy", old.tokenize("therapy")), ("##T", ["##t"])):
        assert [*rows.pieces[numbers[token]]] == [ids[piece] for piece in former]


def test_the_same_tokenizer_needs_no_rows(tokenizers):
    old = tokenizers["wordpiece"]
    assert rows_between(old, deepcopy(old), len(old), len(old)) is None
