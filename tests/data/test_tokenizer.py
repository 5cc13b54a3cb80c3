"""Tokenizers of every kind: trained, saved, loaded by AutoTokenizer, and what they lose."""

import json
import logging
import random
import re
import sys
import unicodedata
from types import SimpleNamespace

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tercet.data.tokenizers.special_tokens import sentinel_ids
from tercet.data.tokenizers.tokenization import tokenize
from tercet.data.tokenizers.tokenizer import KINDS, fit_frame, frame_ids, load_tokenizer, train_tokenizer
from tercet.modeling.saved import model_folder
from tercet.modeling.saved.model_folder import save_tokenizer

from . import tokenizer_kinds

TEXTS = [
    "The house is old, but its doors are new and its windows are clean.",
    "Nobody lives in the old house; everybody lives in the new houses.",
    "What do they do there? They read, write and teach others to read and write!",
] * 4
EVERY_PLANE = "e\u0301 中文 \U0001f600\U0001f468\u200d\U0001f469 \U00020000 \U000e0041 \U000f0000 \U0010fffd"


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return train_tokenizer(TEXTS, request.param, 600, sentinels=4, model_max_length=32)


def test_unigram_keeps_what_joins_and_reads_the_rest_as_sentencepiece_does():
    joined = ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f468\u200d\U0001f469"]
    tokenizer = train_tokenizer([*TEXTS, *joined], "unigram", 600)
    for word in joined:
        assert tokenizer.decode(tokenizer(word)["input_ids"]) == word
    normalizer, rules = tokenizer.backend_tokenizer.normalizer, normalizers.Nmt()
    for code in {*range(1, 0x3000), *range(0xFE00, 0x10000)} - {0x200C, 0x200D}:
        text = f"a{chr(code)}b"
        expected = unicodedata.normalize("NFKC", rules.normalize_str(text))
        assert normalizer.normalize_str(text) == re.sub(" +", " ", expected)


def test_words_keep_characters_that_join_or_hide():
    tokenizer = train_tokenizer(TEXTS, "words", 600)
    for word in (
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "co\u00adop",
        "\ufeffx",
        "a\u0000b",
        "\U0001f469\u200d\U0001f680",
    ):
        assert (
            tokenizer.decode(tokenizer(word, add_special_tokens=False)["input_ids"]).replace(" ", "") == word
        )


def test_auto_tokenizer_loads_what_was_trained(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    for loaded in (AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(str(tmp_path))):
        assert loaded.get_vocab() == tokenizer.get_vocab()
        assert loaded.special_tokens_map == tokenizer.special_tokens_map
        assert loaded.model_input_names == tokenizer.model_input_names
        assert loaded.model_max_length == 32
        for text in (*TEXTS[:3], EVERY_PLANE, "<extra_id_1> the house"):
            assert loaded(text) == tokenizer(text)
        assert loaded(TEXTS[0], TEXTS[1]) == tokenizer(TEXTS[0], TEXTS[1])


def test_every_role_has_a_token_and_padding_ends_nothing(tokenizer):
    roles = ("pad", "cls", "bos", "sep", "eos", "mask")
    tokens = {role: getattr(tokenizer, f"{role}_token_id") for role in roles}
    assert None not in tokens.values()
    assert tokens["cls"] == tokens["bos"]
    assert tokens["sep"] == tokens["eos"]
    assert len(set(tokens.values())) == 4


def test_vocabularies_are_not_larger_than_asked(tokenizer):
    assert len(tokenizer) <= 600
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


def test_sentinels_have_the_last_ids_and_are_special(tokenizer):
    last = list(range(len(tokenizer)))[-4:]
    assert tokenizer.convert_tokens_to_ids([f"<extra_id_{number}>" for number in range(4)]) == last
    assert sentinel_ids(tokenizer).tolist() == last
    assert set(last) < set(tokenizer.all_special_ids)
    assert tokenizer.decode(last, skip_special_tokens=True) == ""


def test_what_stands_for_a_token_takes_the_space_that_the_token_has(tokenizer, tmp_path):
    """Otherwise a space is left before a mask, where none was in pretraining (transformers#12678)."""
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for hole in (tokenizer.mask_token, "<extra_id_2>"):
        whole = tokenizer("The house is old", add_special_tokens=False)["input_ids"]
        place = len(tokenizer("The house", add_special_tokens=False)["input_ids"])
        width = len(tokenizer("The house is", add_special_tokens=False)["input_ids"]) - place
        if tokenizer.convert_ids_to_tokens(whole[place]) == " ":  # a token of its own, among characters
            place, width = place + 1, width - 1
        expected = [*whole[:place], tokenizer.get_vocab()[hole], *whole[place + width :]]
        for each in (tokenizer, loaded):
            assert each(f"The house {hole} old", add_special_tokens=False)["input_ids"] == expected


def test_a_clause_without_spaces_has_pieces_however_long(tmp_path):
    """Of more than 100 characters, as in Thai, it would be one unknown token, also once it is loaded."""
    tokenizer = train_tokenizer(["กรุงเทพ " * 100], "wordpiece", 100)
    save_tokenizer(tokenizer, tmp_path)
    for clause in ("กรุงเทพ" * 15, "กรุงเทพ" * 140):
        for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
            tokens = each.tokenize(clause)
            assert each.unk_token not in tokens
            assert "".join(token.removeprefix("##") for token in tokens) == clause


@pytest.mark.parametrize("text", [*TEXTS[:3], "", "  two  spaces\n\ttabs ", EVERY_PLANE])
def test_bytes_lose_nothing(text):
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 600)
    assert tokenizer.unk_token is None
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.parametrize("kind", ["unigram", "characters"])
def test_known_characters_come_back(kind):
    tokenizer = train_tokenizer(TEXTS, kind, 600)
    for text in TEXTS[:3]:
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "characters"])
def test_unknown_characters_are_unknown_tokens(kind):
    tokenizer = train_tokenizer(TEXTS, kind, 600)
    for text in ("\U0001f600", "中", "\U00020000"):
        assert tokenizer.unk_token_id in tokenizer(text)["input_ids"]
    assert tokenizer.unk_token_id not in tokenizer(TEXTS[0])["input_ids"]


def test_words_are_whole_or_their_bytes():
    tokenizer = train_tokenizer(TEXTS, "words", 600)
    tokens = tokenizer.tokenize("The house, caf\u00e9!")
    assert tokens == ["The", "house", ",", "c", "##a", "##f", "##\u00c3", "##\u00a9", "!"]
    assert tokenizer.decode(tokenizer.convert_tokens_to_ids(tokens)) == "The house , caf\u00e9 !"
    assert tokenizer.convert_ids_to_tokens(tokenizer("old", "new")["input_ids"]) == [
        *("[CLS]", "old", "[SEP]", "new", "[SEP]")
    ]
    assert "token_type_ids" not in tokenizer("old", "new")


def test_the_most_frequent_words_are_known():
    words = [f"w{number}" for number in range(30)]
    texts = [" ".join(words[: 30 - number]) for number in range(30)]
    tokenizer = train_tokenizer(texts, "words", 5 + 2 * 256 + 10)
    assert [word in tokenizer.get_vocab() for word in words] == [True] * 10 + [False] * 20


def test_wordpiece_keeps_words_apart_from_marks():
    tokenizer = train_tokenizer(TEXTS, "wordpiece", 600)
    assert tokenizer.tokenize("The house, new!") == ["The", "house", ",", "new", "!"]


@pytest.mark.parametrize("kind", KINDS)
def test_lowercase_forgets_case(kind):
    tokenizer = train_tokenizer(TEXTS, kind, 600, lowercase=True)
    assert tokenizer("THE House")["input_ids"] == tokenizer("the house")["input_ids"]


@pytest.mark.parametrize("kind", ["wordpiece", "characters"])
def test_pairs_carry_token_types(kind):
    tokenizer = train_tokenizer(TEXTS, kind, 600)
    pair = tokenizer("old", "new houses")
    ids, types = pair["input_ids"], pair["token_type_ids"]
    second = ids.index(tokenizer.sep_token_id) + 1
    assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert types == [0] * second + [1] * (len(ids) - second)


def test_templates_put_around_a_text_what_its_model_reads():
    plain, end, pair, both_ends = (
        train_tokenizer(TEXTS, "byte_bpe", 600, template=name)
        for name in ("plain", "end", "pair", "both_ends")
    )
    text = plain("old house")["input_ids"]
    opening, closing = frame_ids(plain)
    assert end("old house")["input_ids"] == text + closing
    assert pair("old house")["input_ids"] == opening + text + closing
    assert both_ends("old house")["input_ids"] == closing + text + closing
    assert both_ends("old house", "old house")["input_ids"] == (closing + text) * 2 + closing
    assert (plain.padding_side, end.padding_side, both_ends.padding_side) == ("left", "right", "right")
    assert "token_type_ids" not in plain("old house")


TOO_SMALL = [("wordpiece", 20), ("byte_bpe", 200), ("unigram", 12), ("characters", 12), ("words", 500)]


@pytest.mark.parametrize(
    ("kind", "size", "sentinels", "complaint"),
    [
        *((*each, 0, r"vocab_size leaves room for .* alone are \d+: raise") for each in TOO_SMALL),
        ("byte_bpe", 50, 100, r"tokenizer\.vocab_size leaves room for -50 tokens beside sentinels"),
        ("bpe", 600, 0, "kind is 'bpe': use one of wordpiece, byte_bpe, unigram, characters, words"),
    ],
)
def test_a_vocabulary_must_hold_what_each_of_its_kind_holds(kind, size, sentinels, complaint):
    with pytest.raises(ValueError, match=complaint):
        train_tokenizer(TEXTS, kind, size, sentinels=sentinels)


def test_the_rarest_characters_are_left_out():
    tokenizer = train_tokenizer(["the house " * 2000, "\U0001f600"], "wordpiece", 100)
    assert "\U0001f600" not in tokenizer.get_vocab()


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_a_rare_character_keeps_only_its_word_from_being_learned(kind):
    """A document may be one line: without its other words, a book would teach letters."""
    words = "the gardener gardens in the garden; the greenest green is in the greenhouse "
    tokenizer = train_tokenizer(["the \U0001f600things \U0001f600things " + words * 500], kind, 100)
    assert len(tokenizer.tokenize("gardener")) < 5
    assert len(tokenizer.tokenize("things")) > 2


def test_a_rare_character_in_text_without_spaces_cuts_it():
    words = "กรุงเทพ" * 2000
    tokenizer = train_tokenizer([f"{words}ฮ{words}"], "wordpiece", 100)
    assert "ฮ" not in tokenizer.get_vocab()
    assert len(tokenizer.tokenize(words[:70])) < 35


def test_trying_a_tokenizer_out_warns_of_no_long_text(tokenizer, tmp_path, monkeypatch, caplog):
    save_tokenizer(tokenizer, tmp_path)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    load_tokenizer(str(tmp_path))
    assert "longer than the specified maximum" not in caplog.text


def test_a_loaded_tokenizer_must_exist_and_pad(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"cannot be loaded \(.*\): check the path"):
        load_tokenizer(str(tmp_path / "nothing"))
    tokenizer = train_tokenizer(TEXTS, "byte_bpe", 600)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.pad_token_id == loaded.eos_token_id == tokenizer.eos_token_id
    assert len(loaded) == len(tokenizer)
    told = capsys.readouterr().err
    assert f"has no pad token, and pads with its eos token {tokenizer.eos_token}" in told
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has neither a pad token nor an eos token: add one"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "template", "frame"),
    [
        ("wordpiece", "plain", (["[CLS]"], [])),
        ("byte_bpe", "pair", (["<s>"], ["</s>"])),
        ("unigram", "end", ([], ["</s>"])),
        ("byte_bpe", "both_ends", (["</s>"], ["</s>"])),
        ("wordpiece", "end", None),
        ("byte_bpe", "plain", None),
    ],
)
def test_a_tokenizer_frames_texts_as_the_model_learns(tmp_path, capsys, kind, template, frame):
    """A prompt that ends with [SEP] has ended (as in huggingface/transformers#4686)."""
    own = train_tokenizer(TEXTS, kind, 600)
    own.save_pretrained(tmp_path)
    if kind == "wordpiece":  # whose class makes frames anew when it is loaded
        settings = tmp_path / "tokenizer_config.json"
        fields = json.loads(settings.read_text()) | {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": False,
        }
        settings.write_text(json.dumps(fields))
    tokenizer = load_tokenizer(str(tmp_path))
    fit_frame(tokenizer, template, "ours")
    assert bool(capsys.readouterr().err) is (frame is not None)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    inner = own(TEXTS[0], add_special_tokens=False)["input_ids"]
    before, behind = (list(map(own.convert_tokens_to_ids, names)) for names in frame or ([], []))
    assert loaded(TEXTS[0])["input_ids"] == (
        [*before, *inner, *behind] if frame else own(TEXTS[0])["input_ids"]
    )
    assert loaded.padding_side == ("left" if template == "plain" else own.padding_side)


def test_a_class_that_does_not_do_as_its_file_says_is_told_of(tmp_path, recwarn):
    """As huggingface/transformers#45920 has it: OLMo 2 cuts numbers by threes, `GPT2Tokenizer` does not."""
    padded = train_tokenizer(TEXTS, "wordpiece", 600)
    padded.backend_tokenizer.enable_padding(length=128)
    padded.backend_tokenizer.enable_truncation(8)
    padded.save_pretrained(tmp_path)
    settings = tmp_path / "tokenizer_config.json"
    fields = json.loads(settings.read_text())
    settings.write_text(json.dumps(fields | {"tokenizer_class": "BertTokenizer", "do_lower_case": False}))
    load_tokenizer(str(tmp_path))
    tokenizer_kinds.KINDS["bytes by threes"]().save_pretrained(tmp_path)
    load_tokenizer(str(tmp_path))
    assert not recwarn
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"tokenizer_class": "GPT2Tokenizer"}))
    for load in (load_tokenizer, model_folder.load_tokenizer):
        with pytest.warns(
            UserWarning, match=r"GPT2Tokenizer does not cut text as tokenizer\.json there does"
        ):
            load(str(tmp_path) if load is load_tokenizer else tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_text_gives_the_same_tokenizer(kind):
    """Its scores, too: a unigram trainer gives those of rare characters in the order of a hash map."""
    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 7))) for _ in range(300)]
    texts = [" ".join(draw.choices(words, k=20)) for _ in range(200)] + [
        "0 1 2 3 4 5 6 7 8 9 A B C D E F X Y Z"
    ]
    first, second = (train_tokenizer(texts, kind, 540).backend_tokenizer.to_str() for _ in range(2))
    assert first == second


class Pieces:
    """What sentencepiece says of a model that is the letters, "▁" and one piece of its user's."""

    vocabulary = ("<unk>", "<s>", "</s>", "<me>", *"▁abcdefghilmnorstuvyz.,")

    def __init__(self, model_file):
        pass

    def __len__(self):
        return len(self.vocabulary)

    def get_score(self, idx: int) -> float:
        # Zero for those that are not learned.
        return 0.0 if idx < 4 else -float(idx)

    def is_control(self, idx: int) -> bool:
        return idx in (1, 2)

    def is_unknown(self, idx: int) -> bool:
        return idx == 0

    def unk_id(self) -> int:
        return 0

    def id_to_piece(self, idx: int) -> str:
        return self.vocabulary[idx]

    def encode(self, text: str) -> list[int]:
        known = {piece: idx for idx, piece in enumerate(self.vocabulary)}
        cut = re.findall("<me>|.", f"▁{text.replace(' ', '▁')}")
        ids = [known.get(piece, 0) for piece in cut]
        return [idx for place, idx in enumerate(ids) if idx or not place or ids[place - 1]]


@pytest.mark.parametrize(
    ("opening", "own", "is_right"), [("first", True, True), ("never", True, False), ("first", False, False)]
)
def test_a_conversion_that_reads_otherwise_than_sentencepiece_is_told_of(
    tmp_path, recwarn, monkeypatch, opening, own, is_right
):
    """Of a folder without tokenizer.json: transformers before 5.24 leaves out the space before a text."""
    monkeypatch.setitem(sys.modules, "sentencepiece", SimpleNamespace(SentencePieceProcessor=Pieces))
    vocabulary = {piece: idx for idx, piece in enumerate(Pieces.vocabulary)}
    backend = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=opening, split=False)
    if own:
        backend.add_tokens([AddedToken("<me>", normalized=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    tokenizer.vocab_file = str(tmp_path / "tokenizer.model")
    model_folder.settle_reading(tokenizer, str(tmp_path))
    told = [str(warning.message) for warning in recwarn]
    assert is_right or "tokenizer.model there does not cut text as SentencePiece does: add" in told.pop()
    assert not told


def test_a_vocabulary_of_another_library_names_the_library(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"no model")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    for load in (load_tokenizer, model_folder.load_tokenizer):
        with pytest.raises(ValueError, match=r"has no tokenizer.json.*: pip install sentencepiece protobuf"):
            load(str(tmp_path) if load is load_tokenizer else tmp_path)


def test_merges_are_not_left_out_at_random(tmp_path, capsys):
    """BPE dropout of a tokenizer.json would read corpora, held-out texts and prompts each time otherwise."""
    train_tokenizer(TEXTS, "byte_bpe", 400).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    facts = json.loads(file.read_text())
    facts["model"]["dropout"] = 0.5
    file.write_text(json.dumps(facts))
    dropping = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    corpora = [tokenize(TEXTS, dropping).tokens.tolist() for _ in range(2)]
    for load in (load_tokenizer, model_folder.load_tokenizer):
        tokenizer = load(str(tmp_path) if load is load_tokenizer else tmp_path)
        assert "BPE dropout 0.5); this is switched off, so" in capsys.readouterr().err
        assert tokenize(TEXTS, tokenizer).tokens.tolist() == corpora[0] == corpora[1]
        assert tokenizer is not None
        assert len({tuple(tokenizer(TEXTS[0])["input_ids"]) for _ in range(5)}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_of_a_million_characters_takes_no_longer_than_a_million_characters(kind):
    """A trainer's time grows with the square of a word's length: this took twenty minutes."""
    tokenizer = train_tokenizer(["x" * 10**6, "A few words, too."], kind, 600)
    assert tokenizer("few words")["input_ids"]


def test_a_token_whose_id_would_need_billions_of_rows_is_refused(tmp_path):
    tokenizer = train_tokenizer(["the cat sat"] * 5, "wordpiece", 60)
    tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    told = json.loads(file.read_text())
    told["model"]["vocab"]["cat"] = 2**31
    file.write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"tokens, but 'cat' has the id 2,147,483,648: number them"):
        load_tokenizer(str(tmp_path))
