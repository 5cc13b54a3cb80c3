"""Where answers begin, for every family of tokenizers: the tokens are those of the whole text, none lost."""

from itertools import groupby
from operator import itemgetter

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tercet.data.tokenizers.tokenizer import KINDS, train_tokenizer
from tercet.fewshot.prompts.boundary import (
    DecoderPrompts,
    EncoderPrompts,
    Prompt,
    Seq2SeqPrompts,
    SpecialTokenPolicy,
    frame_of,
)

from .conftest import TEXT

PROMPTS = [
    Prompt("Question: what is it?\nAnswer:", (" yes", " no", " unbelievable newspapers")),
    Prompt("Question: what is it?\nAnswer: ", ("yes", "no")),
    Prompt("12 plus 1", ("2 is 45", "23")),
    Prompt("", ("the cat sat", "the dog")),
]


@pytest.fixture(scope="module", params=[*KINDS, "ended", "opened"])
def tokenizer(request):
    """Train a tokenizer of every family, and some with other frames."""
    if request.param == "ended":
        return train_tokenizer(TEXT, "unigram", 400, template="end")
    if request.param == "opened":
        return train_tokenizer(TEXT, "byte_bpe", 400, template="pair")
    return train_tokenizer(TEXT, request.param, 600)


def test_the_frame_is_found_around_what_a_tokenizer_knows():
    """Characters of Chinese alone, of which it drops the others: an empty text has its frame anywhere."""
    vocabulary = {token: number for number, token in enumerate(["[CLS]", "[SEP]", "你", "好"])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="[CLS]", sep_token="[SEP]")
    assert tokenizer("a", add_special_tokens=False)["input_ids"] == []
    assert frame_of(tokenizer) == ((0,), (1,))


@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_context_and_answer_are_the_whole_text(tokenizer, prompt):
    (requests,) = DecoderPrompts(tokenizer, SpecialTokenPolicy()).encode([prompt])
    opening, _ = frame_of(tokenizer)
    for request, answer in zip(requests, prompt.answers, strict=True):
        whole = tokenizer(prompt.context + answer, add_special_tokens=False)["input_ids"]
        if not opening and not prompt.context:
            whole = [tokenizer.bos_token_id, *whole]
        assert list(request.ids) == [*opening, *whole]
    assert len({request.context for request in requests}) == 1
    assert all(request.answer for request in requests)


def test_space_belongs_to_the_token_that_has_it():
    tokenizer = train_tokenizer(TEXT, "byte_bpe", 400)
    encoder = DecoderPrompts(tokenizer, SpecialTokenPolicy())
    for prompt in PROMPTS[:2]:
        (requests,) = encoder.encode([prompt])
        answers = [tokenizer.decode(list(request.answer)) for request in requests]
        assert answers == [f" {answer.strip()}" for answer in prompt.answers]


def test_token_that_joins_both_sides_belongs_to_all_answers():
    vocabulary = {token: number for number, token in enumerate(["<s>", "1", "2", "3", "12", "="])}
    backend = Tokenizer(models.BPE(vocabulary, [("1", "2")]))
    backend.pre_tokenizer = pre_tokenizers.Split("=", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>")
    (requests,) = DecoderPrompts(tokenizer, SpecialTokenPolicy()).encode([Prompt("=1", ("2", "3"))])
    texts = [tokenizer.convert_ids_to_tokens(list(request.answer)) for request in requests]
    assert texts == [["12"], ["1", "3"]]
    assert requests[0].context == requests[1].context == (5,)


def test_policies_open_and_end_texts():
    tokenizer = train_tokenizer(TEXT, "byte_bpe", 400, template="pair")
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    prompt = Prompt("the cat", (" sat",))

    def ids(**policy):
        return DecoderPrompts(tokenizer, SpecialTokenPolicy(**policy)).encode([prompt])[0][0]

    assert ids().context[0] == ids(opening="bos").context[0] == bos
    assert ids(opening="none").context == ids().context[1:]
    assert ids(ends_answer=True).answer == (*ids().answer, eos)
    empty = DecoderPrompts(tokenizer, SpecialTokenPolicy(opening="none")).encode([Prompt("", ("the cat",))])[
        0
    ][0]
    assert empty.context == (bos,)


def test_sources_are_framed_and_targets_are_not():
    tokenizer = train_tokenizer(TEXT, "unigram", 400, template="end", sentinels=2)
    prompt = Prompt("the cat", (" sat",))
    plain = Seq2SeqPrompts(tokenizer, SpecialTokenPolicy(), 7).encode([prompt])[0][0]
    assert plain.context == tuple(tokenizer("the cat")["input_ids"])
    assert plain.answer == tuple(tokenizer(" sat", add_special_tokens=False)["input_ids"])
    assert plain.lead == (7,)
    asked = Seq2SeqPrompts(tokenizer, SpecialTokenPolicy(sentinel=True), 7).encode([prompt])[0][0]
    sentinel = tokenizer.convert_tokens_to_ids("<extra_id_0>")
    assert asked.context == (*plain.context[:-1], sentinel, plain.context[-1])
    assert asked.lead == (7, sentinel)
    assert Seq2SeqPrompts(tokenizer, SpecialTokenPolicy(), 7, 8).encode([prompt])[0][0].lead == (7, 8)


def test_without_a_bos_token_the_tokenizer_opens_texts():
    tokenizer = train_tokenizer(TEXT, "wordpiece", 400)
    tokenizer.bos_token = None
    with pytest.raises(ValueError, match=r"has no bos_token: set prompting\.opening=tokenizer, add one"):
        EncoderPrompts(tokenizer, SpecialTokenPolicy(opening="bos"))
    (requests,) = EncoderPrompts(tokenizer, SpecialTokenPolicy()).encode([Prompt("", ("the cat",))])
    assert requests[0].context == (tokenizer.cls_token_id,)


@pytest.mark.parametrize("prompt", PROMPTS[:1] + PROMPTS[2:], ids=[0, 2, 3])
def test_encoders_read_the_whole_text_in_its_frame(tokenizer, prompt):
    prompt = Prompt(prompt.context, prompt.answers, " .")
    (requests,) = EncoderPrompts(tokenizer, SpecialTokenPolicy()).encode([prompt])
    for request, answer in zip(requests, prompt.answers, strict=True):
        assert list(request.ids) == tokenizer(prompt.context + answer + " .")["input_ids"]
        said = tokenizer.decode(list(request.answer)).replace(" ", "")
        assert said.endswith(answer.replace(" ", ""))
        assert len(request.words) == len(request.answer)


def test_words_are_those_of_the_text_whatever_the_tokenizer(tokenizer):
    """For SentencePiece a word has its marks with it (`word_ids`), which would be masked with it."""
    prompt = Prompt("the", (" unbelievable newspapers, houses.",))
    ((request,),) = EncoderPrompts(tokenizer, SpecialTokenPolicy()).encode([prompt])
    spelled = [
        "".join(tokenizer.decode([token]) for token, _ in group).replace("##", "").strip()
        for _, group in groupby(zip(request.answer, request.words, strict=True), key=itemgetter(1))
    ]
    assert spelled == ["unbelievable", "newspapers", ",", "houses", "."]


@pytest.mark.parametrize("trim_offsets", [True, False])
def test_a_token_of_a_space_belongs_to_its_answer(trim_offsets):
    tokenizer = train_tokenizer(TEXT, "byte_bpe", 300)
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    ((yes, other),) = EncoderPrompts(tokenizer, SpecialTokenPolicy()).encode(
        [Prompt("Answer:", (" yes", " zq"), ".")]
    )
    assert yes.context == other.context
    assert tokenizer.convert_ids_to_tokens(list(other.answer)) == ["Ġ", "z", "q"]
    assert len(set(other.words)) == 1
