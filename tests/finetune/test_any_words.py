"""Words and tokens find each other by their characters: whatever the words are, whatever the tokenizer.

Searched by hypothesis: emoji in several parts, marks that join what stands before, words of nothing but what
normalizers delete, words with spaces in them, words of no characters at all, letters that become several.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers, processors

from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.finetune.encoding import NO_WORD, TextEncoder, words_at
from tercet.finetune.tasks.question_answering import encode_pairs
from tercet.modeling.saved.model_folder import load_tokenizer

ODD = [
    "", " ", "  ", " lead", "\t", "\n",
    "\u3000", "\u2028", "\x07", "\u200b", "\ufeff", "\u00ad", "\u0301", "ze\u200bro",
    "a\u00a0b", "New York", "e\u0301", "\ufb01ne", "\u337f", "\u0130", "ß", "\uff11", "\uff46", "\U0001d4b3",
    "中文", "שלום", "مرحبا", "\u202eabc\u202c", "😀", "😀😀", "👨\u200d👩", "🏳\ufe0f\u200d🌈", "👍🏽",
    "x" * 300, "doors,", "...", "don't", "[SEP]", "</s>", "<0x41>", "▁", "##s", "Ġthe", "house", "The", "a",
]  # fmt: skip
WORD = st.sampled_from(ODD) | st.text(st.characters(codec="utf-8"), max_size=5)
WORDS = st.lists(WORD, min_size=1, max_size=8)

FAMILIES = [
    "wordpiece", "uncased", "byte_bpe", "roberta", "untrimmed", "unigram", "ended", "characters", "llama",
]  # fmt: skip
"""Names in the fixture `families`."""

OF_WORDS = ["wordpiece", "uncased"]
"""Those that read words one by one if they are asked to, and as they would read them in a text."""

OF_BYTES = ["byte_bpe", "roberta", "untrimmed"]
"""Those that lose nothing."""

LONG = 100_000


@pytest.fixture
def encode(families):
    """Encode one row with a family's tokenizer: its ids, and the words at its tokens."""

    def encode(name: str, words: list[str], max_length: int = LONG):
        encoder = TextEncoder(families[name], max_length, has_token_types=False)
        fields = encoder.encode_words([words])
        assert fields["input_ids"].lengths.tolist() == fields["words"].lengths.tolist()
        return fields["input_ids"][0].tolist(), fields["words"][0].tolist()

    return encode


def characters_of(words: list[str]) -> list[set[int]]:
    """Where the characters of each word are, once words are joined; spaces before it are not its own."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    lengths = [len(word.lstrip(" ")) for word in words]
    return [set(range(end - length, end)) for end, length in zip(ends.tolist(), lengths, strict=True)]


def words_by_definition(words: list[str], spans: list[tuple[int, int]]) -> list[int]:
    """Give each token the first word that it shares a character with, and that no token before it has."""
    places, found, newest = characters_of(words), [], NO_WORD
    for first, last in spans:
        shared = [number for number, place in enumerate(places) if place & set(range(first, last))]
        number = min((number for number in shared if number > newest), default=NO_WORD)
        found.append(number)
        newest = max(newest, number)
    return found


SPANS = st.lists(st.integers(0, 20), max_size=12).flatmap(
    lambda begins: st.lists(st.integers(0, 25), min_size=len(begins), max_size=len(begins)).map(
        lambda ends: [*zip(sorted(begins), map(max, sorted(begins), sorted(ends)), strict=True)]
    )
)
"""Spans of tokens that go on from left to right, with gaps, and some over several words."""


def test_spans_may_be_any(effort):
    @effort(500)
    @given(st.lists(st.sampled_from(["", " ", "a", "the", "  house"]), max_size=8), SPANS)
    def law(words, spans):
        assert words_at(words, spans).tolist() == words_by_definition(words, spans)

    law()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_word_is_at_the_first_token_that_has_a_character_of_it(families, encode, effort, name):
    @effort(60)
    @given(WORDS)
    def law(words):
        whole = families[name](" ".join(words), return_offsets_mapping=True)
        if whole["input_ids"]:
            expected = words_by_definition(words, whole["offset_mapping"])
            assert encode(name, words) == (whole["input_ids"], expected)

    law()


@pytest.mark.parametrize("name", OF_WORDS)
def test_words_of_a_text_are_words_that_are_given_one_by_one(families, encode, effort, name):
    @effort(100)
    @given(WORDS.filter(any))
    def law(words):
        split = families[name](words, is_split_into_words=True)
        numbers = split.word_ids()
        first = [number is not None and number not in numbers[:place] for place, number in enumerate(numbers)]
        expected = [number if begins else NO_WORD for number, begins in zip(numbers, first, strict=True)]
        assert encode(name, words) == (split["input_ids"], expected)

    law()


@pytest.mark.parametrize("name", OF_BYTES)
def test_the_tokens_from_word_to_word_spell_the_words(families, encode, effort, name):
    tokenizer = families[name]

    def is_one_of_text(word):
        return word.split() == [word] and not any(token in word for token in tokenizer.all_special_tokens)

    @effort(100)
    @given(st.lists(WORD.filter(is_one_of_text), min_size=1, max_size=8))
    def law(words):
        ids, numbers = encode(name, words)
        begins = [place for place, number in enumerate(numbers) if number != NO_WORD]
        parts = [ids[first:last] for first, last in zip(begins, [*begins[1:], None], strict=True)]
        assert [numbers[place] for place in begins] == list(range(len(words)))
        assert [tokenizer.decode(part, skip_special_tokens=True).strip() for part in parts] == words

    law()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.filterwarnings("ignore:.*they are truncated")
def test_what_is_cut_off_takes_no_word_with_it_that_stands_before(families, encode, effort, name):
    framed = families[name].num_special_tokens_to_add()
    is_closed = families[name]("a")["input_ids"][-1] in families[name].all_special_ids

    @effort(30)
    @given(WORDS, st.integers(1, 12))
    def law(words, room):
        if not families[name](" ".join(words))["input_ids"]:
            return
        (ids, numbers), limit = encode(name, words), room + framed
        cut_ids, cut_numbers = encode(name, words, limit)
        assert len(cut_ids) == min(len(ids), limit)
        end = len(cut_ids) - is_closed
        assert (cut_ids[:end], cut_numbers[:end]) == (ids[:end], numbers[:end])
        assert set(cut_numbers[end:]) <= {NO_WORD}

    law()


SPACED = pre_tokenizers.ByteLevel(add_prefix_space=True)
"""Puts a space before the first word."""


@pytest.mark.parametrize(
    ("pre_tokenizer", "is_trimmed"),
    [(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), SPACED]), False), (SPACED, True)],
    ids=["every_word", "first_word"],
)
def test_words_have_all_their_letters_where_a_tokenizer_puts_spaces_before_them(
    tmp_path, pre_tokenizer, is_trimmed
):
    """RobBERT's takes a first letter for the space that it has put there: one letter alone has no place."""
    tokenizer = train_tokenizer(["(that) is a dog , a cat é 5"] * 9, "byte_bpe", 330)
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizer
    backend.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded is not None
    encoder = TextEncoder(loaded, LONG, has_token_types=False)
    words = ["is", "a", ",", "(", "5", "é", "dog"]
    numbers = encoder.encode_words([words])["words"][0]
    assert numbers[numbers != NO_WORD].tolist() == [*range(len(words))]
    text = "(that) is a dog, 5"
    [pair] = encode_pairs(encoder, ["is"], [text])
    found = {text[begin:end] for begin, end in zip(pair["begins"], pair["ends"], strict=True)}
    assert found >= {"(", ")", "a", ",", "5"}
    assert not found & {"(t", "dog,", "hat"}
    assert loaded.backend_tokenizer.post_processor.trim_offsets == is_trimmed
