"""Terms become tokens of any tokenizer, one each, are written back, and no other text is cut anew."""

from copy import deepcopy

import pytest
from tokenizers import AddedToken, normalizers
from transformers import AutoTokenizer, CamembertTokenizer, T5Tokenizer, XLMRobertaTokenizer

from tercet.data.tokenizers.new_terms import (
    add_spelled,
    add_terms,
    adopt,
    backend_of,
    extended,
    learn_terms,
    read_terms,
    require_same_reading,
)
from tercet.data.tokenizers.tokenizer import train_tokenizer

TEXT = "The chemical chemo kinase skin, the cat sat on a mat (in)compatible chemistry kin skin. Therapy! "
TEXT += "A chemist of 2,000 mats. C++ and a lung cancer"
SIZES = {"wordpiece": 200, "byte_bpe": 330, "unigram": 70, "characters": 200, "words": 540}
TERMS = ["chemokine", "lung cancer", "in-mat", "C++"]
WITHOUT = ["The cat sat on a mat.", "chemo kine", "lung", "a cancer, in a mat!", "chemokin", "A C mat\nsat"]
WITH = "The chemokine, (chemokine) of a lung cancer sat in-mat and C++ skin."


@pytest.fixture(scope="module")
def trained():
    return {
        kind: train_tokenizer([TEXT] * 5, kind, size, lowercase=kind == "wordpiece", special_tokens=["<|x|>"])
        for kind, size in SIZES.items()
    }


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("kind", SIZES)
def test_a_term_is_one_token_and_other_text_keeps_its_ids(trained, kind, tmp_path):
    before, after = trained[kind], deepcopy(trained[kind])
    terms = [term for term in TERMS if kind != "words" or term == "lung cancer"]
    told = add_terms(after, terms)
    assert set(before.get_vocab().items()) <= set(after.get_vocab().items())
    new = [after.get_vocab()[token] for token in told.tokens]
    assert new == [*range(max(before.get_vocab().values()) + 1, max(after.get_vocab().values()) + 1)]
    for text in WITHOUT:
        assert ids_of(after, text) == ids_of(before, text)
    for term in terms:
        assert len([number for number in ids_of(after, term) if number in new]) == 1
        assert ids_of(after, f"a {term} b")[: len(ids_of(after, "a"))] == ids_of(after, "a")
    if before.unk_token_id not in ids_of(before, WITH):
        written = [each.decode(ids_of(each, WITH)) for each in (before, after)]
        assert len({"".join(text.split()) if kind == "wordpiece" else text for text in written}) == 1
    assert len(ids_of(after, WITH)) < len(ids_of(before, WITH))
    after.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == after.get_vocab()
    assert ids_of(again, WITH) == ids_of(after, WITH)
    assert again("<|x|>")["input_ids"] == before("<|x|>")["input_ids"]


def test_words_are_spelled_as_the_tokenizer_spells_them(trained):
    for kind, term, tokens in (
        ("wordpiece", "Chemokine", ["chemokine"]),
        ("byte_bpe", "Chemokine", ["ĠChemokine", "Chemokine"]),
    ):
        after = deepcopy(trained[kind])
        assert add_terms(after, [term]).tokens == tokens
        assert tokens[0] in after.tokenize(f"a {term}s, {term}") + after.tokenize(f"a {term}")


def test_a_piece_that_is_no_word_of_a_text_is_no_known_term(trained):
    """Alone it is one token; behind a space, where words stand, it was not."""
    after = deepcopy(trained["byte_bpe"])
    told = add_terms(after, ["hem", "kinase", "<|x|>"])
    assert (told.tokens, told.known) == (["Ġhem", "kinase"], ["<|x|>"])
    assert after.tokenize("hem hem kinase") == ["hem", "Ġhem", "Ġkinase"]


def test_one_phrase_in_two_cases_is_one_token_where_case_is_lost(trained):
    terms = ["Lung cancer", "lung cancer"]
    assert add_terms(deepcopy(trained["wordpiece"]), terms).tokens == terms[:1]
    assert add_terms(deepcopy(trained["byte_bpe"]), terms).tokens == terms


def test_wordpiece_takes_a_term_as_the_beginning_of_a_word(trained):
    """As its users expect (tokenizers 786): with the sign of a part behind it."""
    after = deepcopy(trained["wordpiece"])
    add_terms(after, ["chemokine"])
    assert after.tokenize("chemokines") == ["chemokine", "##s"]


def test_terms_that_are_tokens_and_repetitions_are_told_of(trained):
    told = add_terms(deepcopy(trained["wordpiece"]), ["Skin", "chemokine", "CHEMOKINE", "lung cancer"])
    assert (told.tokens, told.phrases, told.known) == (
        ["chemokine", "lung cancer"],
        ["lung cancer"],
        ["Skin"],
    )
    assert told.told("terms") == (
        "terms: 2 tokens are new (chemokine, lung cancer), 1 of them found as they stand in the text "
        "(lung cancer); 1 were one token already (Skin)"
    )


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_a_tokenizer_that_pads_and_cuts_gets_the_same_terms(trained, kind):
    """As a `tokenizer.json` may say: each encoding has 16 ids, or three."""
    expected, padded, cut = (deepcopy(trained[kind]) for _ in range(3))
    padded.backend_tokenizer.enable_padding(length=16)
    cut.backend_tokenizer.enable_truncation(3)
    told = add_terms(expected, [*TERMS, "skin", "The"])
    for each in (padded, cut):
        assert add_terms(each, [*TERMS, "skin", "The"]) == told
        assert each.get_vocab() == expected.get_vocab()


def test_pair_encoding_that_would_cut_other_words_anew_keeps_to_added_tokens(trained):
    """A known word that its merges do not lead to would become one token by the way."""
    before = deepcopy(trained["byte_bpe"])
    before.add_tokens([AddedToken("matt", single_word=True)])
    after = deepcopy(before)
    told = add_terms(after, ["chemokine"])
    assert told.phrases == ["chemokine"]
    assert ids_of(after, "a chemokine sat") != ids_of(before, "a chemokine sat")
    assert after.decode(ids_of(after, "a chemokine sat")) == "a chemokine sat"


def test_a_tokenizer_that_puts_spaces_before_parts_is_refused(trained):
    before = deepcopy(trained["byte_bpe"])
    before.backend_tokenizer.normalizer = normalizers.Prepend(" ")
    with pytest.raises(ValueError, match=r"'lung cancer' cannot become a token .* would write .* leave the"):
        add_terms(before, ["lung cancer"])


PIECES = [(piece, -len(piece) / 9) for piece in ["▁", "▁the", "▁cat", *"abcehimnost,."]]


@pytest.mark.parametrize("term", ["x^2", "mat", "a cat"])
@pytest.mark.parametrize(
    ("kind", "special"),
    [
        (T5Tokenizer, ["<pad>", "</s>", "<unk>"]),
        (XLMRobertaTokenizer, ["<s>", "<pad>", "</s>", "<unk>"]),
        (CamembertTokenizer, ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"]),
    ],
)
def test_a_tokenizer_that_cuts_at_spaces_first_is_refused_and_reads_on_as_before(kind, special, term):
    """Each of its words begins with the sign of a space, of which an added token loses one."""
    before, after = (kind(vocab=[*((name, 0.0) for name in special), *PIECES]) for _ in range(2))
    with pytest.raises(ValueError, match=r" cannot become a token .* leave the term out"):
        add_terms(after, [term])
    assert after.tokenize("the cat sat on the mat") == before.tokenize("the cat sat on the mat")
    backend = extended(backend_of(before), [], [term])
    assert backend.encode("the cat", add_special_tokens=False).tokens == before.tokenize("the cat")


def test_lines_without_a_term_have_to_keep_their_ids(trained):
    before, after = trained["unigram"], deepcopy(trained["unigram"])
    add_terms(after, ["lung cancer"])
    require_same_reading(before, after, ["the cat sat\n\na lung cancer"])
    backend = backend_of(after)
    backend.normalizer = normalizers.Lowercase()
    adopt(after, backend)
    require_same_reading(before, after, ["A lung cancer"])
    with pytest.raises(ValueError, match=r"would read 'A chemist', which has none of them, as .*: leave"):
        require_same_reading(before, after, ["a mat\nA chemist"])


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_learned_words_are_those_that_save_most(trained, kind):
    texts = ["kinases kinases chemokinase chemokinase 2222222 !!!!", "chemokinase once cat cat cat cat cat"]
    tokenizer = trained[kind]

    def saved(word: str) -> int:
        return texts[0].count(word) * (len(ids_of(tokenizer, f" {word}")) - 1)

    found = learn_terms(tokenizer, 2, [texts[0]] * 2)
    words = [word.strip("Ġ▁") for word in found]
    assert words == sorted(("kinases", "chemokinase"), key=saved, reverse=True)
    after = deepcopy(tokenizer)
    add_spelled(after, found)
    assert len(ids_of(after, texts[0])) < len(ids_of(tokenizer, texts[0]))
    assert learn_terms(tokenizer, 5, ["once upon"]) == []


def test_terms_are_read_from_a_file_or_a_list(tmp_path):
    file = tmp_path / "terms.txt"
    file.write_text("\ufeffchemokine\n\n  lung cancer \nchemokine\n", encoding="utf-8")
    assert read_terms(str(file)) == ["chemokine", "lung cancer"]
    assert read_terms(["b", "a ", "b"]) == ["b", "a"]
    with pytest.raises(FileNotFoundError, match=r"tokenizer.add is 'mat', which is not a file: .*=\[mat\]"):
        read_terms("mat")
    with pytest.raises(ValueError, match="has no terms: leave it out"):
        read_terms([" "])
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"terms.txt is not a text in UTF-8"):
        read_terms(str(file))
