"""Words as bytes: what a tagger reads is what was written."""

from tercet.conversion.word_tokenizer import word_tokenizer
from tercet.modeling.word_bytes import UNREADABLE, read_words


def test_words_are_read_as_they_are():
    ids = word_tokenizer()(" a\u3000b  Größe ", return_tensors="pt")["input_ids"]
    words, texts = read_words(ids)
    assert texts == [["a\u3000b", "Größe"]]
    assert words.lengths.tolist() == [2]
    assert read_words(word_tokenizer()("  ", return_tensors="pt")["input_ids"])[1] == [[UNREADABLE]]
    assert word_tokenizer().decode(ids[0]) == " a\u3000b  Größe "


def test_a_name_of_a_special_token_is_a_word():
    ids = word_tokenizer()("a [PAD] b", return_tensors="pt")["input_ids"]
    assert read_words(ids)[1] == [["a", "[PAD]", "b"]]
