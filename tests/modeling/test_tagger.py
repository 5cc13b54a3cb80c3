"""The tagger: its features are those of the models it was made of, and its layouts agree."""

import sys
from logging import getLogger
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForTokenClassification, AutoTokenizer, pipeline

from tercet import (
    TercetCharacterConfig,
    TercetCharacterLanguageModel,
    TercetTaggerConfig,
)
from tercet.conversion.word_tokenizer import word_tokenizer
from tercet.modeling.word_bytes import read_words
from tercet.modeling.word_embedders import adopt, build_embedder, describe
from tercet.storage.model_folder import load_tokenizer
from tercet.storage.own_model import load_ours
from tercet.text.tokenizer import train_tokenizer

from ..small_taggers import MAKERS, TEXTS, build_new_tagger, save_characters, save_sources

SENTENCES = [["the", "cat", "sat"], ["Größe"], ["a", "dog", "?", "under", "trees"]]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    return save_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture
def build_tagger(sources):
    """Build a tagger on the word vectors of some models, for evaluation."""
    return lambda *names, **fields: build_new_tagger(sources, *names, **fields).eval()


@pytest.fixture
def tagger(build_tagger):
    return build_tagger("static", "characters", "elmo", num_hidden_layers=2, projection_size=12)


def padded(sentences, **options):
    tokenizer = word_tokenizer()
    return tokenizer([" ".join(words) for words in sentences], padding=True, return_tensors="pt", **options)


@torch.no_grad()
def test_features_are_what_each_model_says(tagger, sources):
    parts = [load_ours(str(sources / name)) for name in MAKERS]
    static, characters, elmo = parts
    tokenizer = load_tokenizer(sources / "characters")
    for number, found in enumerate(tagger.model.features(SENTENCES)):
        own = [SENTENCES[number]]
        expected = [
            static.embed_words(own)[0],
            characters.model.embed_words(tokenizer, own)[0],
            elmo.embed_words(own)[0].transpose(0, 1).flatten(1),
        ]
        assert_close(found, torch.cat(expected, dim=-1), **CLOSE)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("letters", ["", "\u0130 \u0264 \u03c3\u03c2 \U00010428 "])
def test_characters_are_read_as_a_tokenizer_reads_them(tmp_path, lowercase, letters):
    tokenizer = train_tokenizer([letters + TEXTS[0], *TEXTS], "characters", 60, lowercase=lowercase)
    config = TercetCharacterConfig(vocab_size=len(tokenizer), hidden_size=12, embedding_size=8)
    model = TercetCharacterLanguageModel(config)
    embedder = build_embedder(describe(model.config, tokenizer))
    adopt(embedder, model, tokenizer)
    words = ["The", "ÉTÉ", "CAT", "Ω", "\u0130I", "\u039f\u03a3", "\U00010400", "\ua7cb", "\u00df\u1e9e"]
    numbers = [0x1F600, *range(0x21, sys.maxunicode + 1, 997)]
    words += [chr(number) for number in numbers if not chr(number).isspace()]
    words = [word for word in words if not "\ud800" <= word <= "\udfff"]
    for word in words:
        found = embedder.encode([word]).ids[1:-1]
        assert found == tokenizer(word, add_special_tokens=False)["input_ids"], ascii(word)


@torch.no_grad()
def test_an_alphabet_that_was_saved_without_expansions_is_read_as_it_was(tmp_path):
    save_characters(tmp_path, lowercase=True)
    model, tokenizer = load_ours(str(tmp_path)), load_tokenizer(tmp_path)
    description = describe(model.config, tokenizer)
    earlier = description | {
        "alphabet": {k: v for k, v in description["alphabet"].items() if k != "expansions"}
    }
    embedders = [build_embedder(each) for each in (description, earlier)]
    for embedder in embedders:
        adopt(embedder, model, tokenizer)
    sentence = ["The", "CAT", "\u0130"]
    new, old = (embedder.encode(sentence).ids for embedder in embedders)
    assert new[:-3] == old[:-2]
    assert old[-2] == tokenizer.unk_token_id


def test_padded_packed_and_alone_are_the_same(tagger):
    left, right = padded(SENTENCES, padding_side="left"), padded(SENTENCES)
    alone = [tagger(**padded([words])) for words in SENTENCES]
    stream = torch.cat([padded([words])["input_ids"][0] for words in SENTENCES])[None]
    lengths = [each.tags.shape[1] for each in alone]
    bounds = torch.tensor([0, *lengths]).cumsum(0)
    packed = tagger(stream, cu_seq_lens_q=bounds)
    assert_close(packed.logits[0], torch.cat([each.logits[0] for each in alone]), **CLOSE)
    assert_close(packed.tags[0], torch.cat([each.tags[0] for each in alone]))
    for inputs in (left, right):
        found, is_real = tagger(**inputs), inputs["attention_mask"] == 1
        assert_close(found.logits[is_real], packed.logits[0], **CLOSE)
        assert_close(found.tags[is_real], packed.tags[0])
        assert (found.tags[~is_real] == -100).all()


def test_losses_of_all_layouts_have_the_same_gradients(build_tagger):
    tagger = build_tagger("static", "elmo", dropout=0.0, word_dropout=0.0).train()
    inputs = padded(SENTENCES)
    labels = torch.randint(0, 3, inputs["input_ids"].shape)
    labels[inputs["attention_mask"] == 0] = -100
    learned = [each for each in tagger.parameters() if each.requires_grad]
    whole = torch.autograd.grad(tagger(**inputs, labels=labels, reduction="sum").loss, learned)
    total = [torch.zeros_like(each) for each in learned]
    for row, words in enumerate(SENTENCES):
        own = padded([words])
        loss = tagger(**own, labels=labels[row, None, : own["input_ids"].shape[1]], reduction="sum").loss
        total = [sum(pair) for pair in zip(total, torch.autograd.grad(loss, learned), strict=True)]
    assert_close([*whole], total, **CLOSE)


def test_a_layer_is_a_bidirectional_lstm(build_tagger):
    tagger = build_tagger("static")
    (layer,) = tagger.model.layers
    stock = torch.nn.LSTM(10, 8, batch_first=True, bidirectional=True)
    directions = {"": layer.forwards, "_reverse": layer.backwards}
    names = {
        f"{name}{ending}": weights.detach()
        for ending, lstm in directions.items()
        for name, weights in lstm.named_parameters()
    }
    stock.load_state_dict(names)
    for words in SENTENCES:
        (vectors,) = tagger.model.features([words])
        found, _ = read_words(padded([words])["input_ids"])
        assert_close(layer(vectors, found), stock(vectors[None])[0][0], **CLOSE)


def test_a_tagger_is_saved_whole(tagger, tmp_path):
    tagger.save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path)
    for is_training in (True, False):
        loaded.train(is_training)
        assert not any(each.requires_grad for each in loaded.model.features.parameters())
        assert all(each.requires_grad for each in loaded.model.layers.parameters())
    assert_close(loaded.state_dict(), tagger.state_dict(), rtol=0, atol=0)
    assert_close(loaded(**padded(SENTENCES)).logits, tagger(**padded(SENTENCES)).logits, **CLOSE)
    base = AutoModel.from_pretrained(tmp_path)
    states = base(**AutoTokenizer.from_pretrained(tmp_path)("the cat", return_tensors="pt"))
    assert states.last_hidden_state.shape == (1, 7, 16)


def test_elmo_in_a_tagger_warns_of_no_ids_of_its_vocabulary(sources, caplog):
    config = load_ours(str(sources / "elmo")).config
    ids = {"pad_token_id": 4, "bos_token_id": 2, "eos_token_id": 3, "unk_token_id": 1}
    config.update(ids)
    description = describe(config, None)
    assert not ids.keys() & description
    logger = getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        build_embedder(description)
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records


def test_a_pipeline_gives_probabilities_of_labels(tagger, tmp_path):
    tagger.save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    label = pipeline("token-classification", str(tmp_path), device="cpu", ignore_labels=[])
    found = label("the cat")
    logits = tagger(**padded([["the", "cat"]])).logits[0]
    assert_close(torch.tensor([each["score"] for each in found]), logits.exp().amax(-1), **CLOSE)


def test_spaces_before_a_text_change_nothing(tagger):
    expected = tagger(**padded([["the", "cat"]]))
    for side in ("left", "right"):
        texts = ["  the cat", "a dog ran under"]
        found = tagger(**word_tokenizer()(texts, padding=True, padding_side=side, return_tensors="pt"))
        begin = 2 if side == "right" else 2 + len(texts[1]) - len(texts[0])
        assert_close(found.logits[0, begin : begin + 7], expected.logits[0], **CLOSE)
        assert (found.tags[0, :begin] == -100).all()


def test_recorded_layers_lead_to_the_labels_and_pass_gradients(tagger):
    inputs = padded(SENTENCES)
    expected, outputs = tagger(**inputs), tagger(**inputs, output_hidden_states=True)
    assert expected.hidden_states is None
    assert_close((outputs.logits, outputs.tags), (expected.logits, expected.tags), rtol=0, atol=0)
    assert [each.shape[-1] for each in outputs.hidden_states] == [12, 16, 16]
    states = tagger.model(**inputs, output_hidden_states=True)
    assert_close(states.hidden_states, outputs.hidden_states, rtol=0, atol=0)
    assert states.last_hidden_state is states.hidden_states[-1]
    assert_close(states.last_hidden_state, tagger.model(**inputs).last_hidden_state, rtol=0, atol=0)
    for each in outputs.hidden_states:
        each.retain_grad()
    outputs.logits.sum().backward()
    assert all(each.grad.any() for each in outputs.hidden_states)
    tagger.config.output_hidden_states = True
    labels = torch.zeros_like(inputs["input_ids"])
    assert len(tagger.train()(**inputs, labels=labels).hidden_states) == 3


def test_a_text_without_words_has_no_loss_and_no_tags(tagger):
    inputs = padded([["the", "bank"], []])
    labels = torch.ones_like(inputs["input_ids"]).masked_fill(inputs["attention_mask"] == 0, -100)
    alone = tagger(**padded([["the", "bank"]]), labels=labels[:1])
    found = tagger(**inputs, labels=labels)
    assert_close(found.loss, alone.loss)
    assert (found.tags[1] == -100).all()
    with pytest.raises(ValueError, match=r"input_ids has the shape \(1, 0\): give at least one word"):
        tagger(torch.empty(1, 0, dtype=torch.long))


def test_a_smoothed_loss_is_refused(tagger):
    inputs = padded(SENTENCES)
    with pytest.raises(
        ValueError, match=r"label_smoothing is 0\.1, which the likelihood of a whole sentence"
    ):
        tagger(**inputs, labels=torch.zeros_like(inputs["input_ids"]), label_smoothing=0.1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_size": 15}, "hidden_size is 15: choose an even one"),
        ({"word_dropout": 1.0}, "word_dropout is 1.0"),
        ({"embeddings": [{}]}, "name at least one model"),
    ],
)
def test_impossible_fields_are_refused(fields, words):
    with pytest.raises(Exception, match=words):
        TercetTaggerConfig(**fields)


def test_models_that_give_no_word_vectors_are_refused(sources):
    with pytest.raises(ValueError, match="a tercet_tagger gives no word vectors to a tagger: use one of"):
        describe(TercetTaggerConfig(), None)
    with pytest.raises(ValueError, match="a character model needs its own tokenizer, of kind characters"):
        describe(load_ours(str(sources / "characters")).config, load_tokenizer(sources / "elmo"))
