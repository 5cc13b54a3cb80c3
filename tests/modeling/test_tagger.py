"""The tagger: its features are those of the models it was made of, and its layouts agree.

The linear chain equals what enumerating every sequence of labels says, whatever fills the rows.

Labels behind the first byte of a word continue the entity that begins there.

What embedders say of words is remembered: frozen ones always say what they say in evaluation.
"""

import sys
from itertools import product
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
    TercetTaggerForTokenClassification,
)
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling.heads.losses import IGNORE
from tercet.modeling.recurrent import tagger as word_features
from tercet.modeling.recurrent.tagger import ConditionalRandomField, continued
from tercet.modeling.recurrent.word_embedders import adopt, build_embedder, describe
from tercet.modeling.recurrent.word_tokenizer import word_tokenizer
from tercet.modeling.recurrent.words import read_words
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.model_folder import load_tokenizer

from ..small_taggers import MAKERS, TEXTS, build_new_tagger, save_characters, save_sources, save_static

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
    parts = [Checkpoint.open(str(sources / name)).ours() for name in MAKERS]
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
    model, tokenizer = Checkpoint.open(str(tmp_path)).ours(), load_tokenizer(tmp_path)
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
    config = Checkpoint.open(str(sources / "elmo")).ours().config
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
    with pytest.raises(ValueError, match=r"label_smoothing is 0\.1, but the labelling of a sentence is not"):
        tagger(**inputs, labels=torch.zeros_like(inputs["input_ids"]), label_smoothing=0.1)


def test_models_that_give_no_word_vectors_are_refused(sources):
    with pytest.raises(ValueError, match="a tercet_tagger gives no word vectors to a tagger: use one of"):
        describe(TercetTaggerConfig(), None)
    with pytest.raises(ValueError, match="a character model needs its own tokenizer, of kind characters"):
        describe(Checkpoint.open(str(sources / "characters")).ours().config, load_tokenizer(sources / "elmo"))


NUM_LABELS = 3


LENGTHS = torch.tensor([4, 1, 3])


NEAR = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture
def crf() -> ConditionalRandomField:
    torch.manual_seed(0)
    crf = ConditionalRandomField(NUM_LABELS)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_()
    return crf


@pytest.fixture
def emissions() -> torch.Tensor:
    return torch.randn(3, 4, NUM_LABELS, generator=torch.Generator().manual_seed(1)).requires_grad_()


def defined_score(crf, emissions, labels) -> torch.Tensor:
    """Add up the score of one sequence of labels of one sentence (W, L). The definition."""
    total = crf.starts[labels[0]] + crf.ends[labels[-1]]
    for place, label in enumerate(labels):
        total = total + emissions[place, label]
        if place:
            total = total + crf.transitions[labels[place - 1], label]
    return total


def all_scores(crf, emissions) -> dict[tuple[int, ...], torch.Tensor]:
    """Score all L^W sequences of labels of one sentence."""
    return {
        labels: defined_score(crf, emissions, labels)
        for labels in product(range(NUM_LABELS), repeat=len(emissions))
    }


def sentences(emissions):
    """Give each sentence's emissions without what fills its row."""
    return [rows[:length] for rows, length in zip(emissions, LENGTHS.tolist(), strict=True)]


def gradients(loss, crf, emissions) -> list[torch.Tensor]:
    return [*torch.autograd.grad(loss, [emissions, *crf.parameters()])]


def test_the_partition_is_the_sum_over_all_sequences(crf, emissions):
    expected = torch.stack(
        [torch.stack([*all_scores(crf, own).values()]).logsumexp(0) for own in sentences(emissions)]
    )
    found = crf.log_partition(emissions, LENGTHS)
    assert_close(found, expected, **NEAR)
    assert_close(gradients(found.sum(), crf, emissions), gradients(expected.sum(), crf, emissions), **NEAR)


def test_the_best_sequence_has_the_highest_score(crf, emissions):
    found = crf.decode(emissions, LENGTHS)
    for own, tags, length in zip(sentences(emissions), found.tolist(), LENGTHS.tolist(), strict=True):
        scores = all_scores(crf, own)
        assert tuple(tags[:length]) == max(scores, key=lambda labels: scores[labels].item())
        assert tags[length:] == [IGNORE] * (4 - length)


def test_marginals_are_sums_over_the_sequences_with_a_label(crf, emissions):
    found = crf.log_marginals(emissions, LENGTHS)
    for own, log_probabilities in zip(sentences(emissions), found, strict=True):
        scores = all_scores(crf, own)
        whole = torch.stack([*scores.values()]).logsumexp(0)
        for place, label in product(range(len(own)), range(NUM_LABELS)):
            with_label = [score for labels, score in scores.items() if labels[place] == label]
            expected = torch.stack(with_label).logsumexp(0) - whole
            assert_close(log_probabilities[place, label], expected, **NEAR)


def test_the_loss_is_that_of_the_labels_that_are_known(crf, emissions):
    known = torch.tensor([[2, 0, 1, 1], [1, IGNORE, IGNORE, IGNORE], [0, 0, 2, IGNORE]])
    partly = torch.tensor([[2, IGNORE, 1, IGNORE], [IGNORE] * 4, [IGNORE, 0, 2, 1]])
    for labels in (known, partly):
        expected = []
        for own, right in zip(sentences(emissions), labels.tolist(), strict=True):
            scores = all_scores(crf, own)
            allowed = [
                score
                for each, score in scores.items()
                if all(given in (IGNORE, label) for given, label in zip(right, each, strict=False))
            ]
            whole = torch.stack([*scores.values()]).logsumexp(0)
            expected.append(whole - torch.stack(allowed).logsumexp(0))
        found = crf.negative_log_likelihood(emissions, LENGTHS, labels)
        assert_close(found, torch.stack(expected), **NEAR)
        assert_close(
            gradients(found.sum(), crf, emissions),
            gradients(torch.stack(expected).sum(), crf, emissions),
            **NEAR,
        )


def test_half_precision_makes_nothing_more_likely_than_certain(crf):
    labels = torch.arange(301)[None] % NUM_LABELS
    with torch.no_grad():
        crf.transitions.copy_(torch.full((3, 3), -9.01))
        crf.transitions[labels[0, :-1], labels[0, 1:]] = 9.01
    emissions = torch.zeros(1, 301, NUM_LABELS)
    loss = crf.bfloat16().negative_log_likelihood(emissions, torch.tensor([301]), labels)
    assert_close(loss, crf.float().negative_log_likelihood(emissions, torch.tensor([301]), labels), **NEAR)


def test_labels_that_begin_nothing_stay_as_they_are():
    scores = torch.randn(3, 2).log_softmax(-1)
    assert continued(scores, torch.tensor([True, False, True]), {0: "NOUN", 1: "VERB"}) is scores


def test_bytes_behind_the_first_have_the_likeliest_label_of_their_word():
    labels, is_first = {0: "O", 1: "B-X", 2: "I-X"}, torch.tensor([True, False, False])
    for word, best in (
        ((0.45, 0.3, 0.25), [0] * 3),
        ((0.2, 0.5, 0.3), [1, 2, 2]),
        ((0.3, 0.3, 0.4), [2] * 3),
    ):
        found = continued(torch.tensor([word] * 3).log(), is_first, labels)
        assert found.argmax(-1).tolist() == best
        assert_close(found.exp().sum(-1), torch.ones(3))
        assert_close(found.amax(-1).exp(), torch.full((3,), max(word)))


@pytest.mark.parametrize("names", [["B-LOC", "O"], ["O", "I-LOC", "B-LOC"]])
def test_a_stock_pipeline_finds_whole_words(tmp_path, names):
    source = Checkpoint.open(str(save_static(tmp_path))).ours()
    torch.manual_seed(0)
    config = TercetTaggerConfig(
        embeddings=[describe(source.config, None)],
        hidden_size=16,
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    tagger = TercetTaggerForTokenClassification(config).eval()
    adopt(tagger.model.features.parts[0], source, None)
    with torch.no_grad():
        tagger.classifier.weight.zero_()
        tagger.classifier.bias.copy_(torch.eye(3)[names.index("B-LOC")] * 2)
        tagger.crf.transitions.zero_()
    text = "Zoë went to 北京 ."
    tag = pipeline("token-classification", tagger, tokenizer=word_tokenizer(), aggregation_strategy="simple")
    spans = [(each["entity_group"], text[each["start"] : each["end"]].strip()) for each in tag(text)]
    assert spans == [("LOC", word) for word in text.split()]
    again, read = type(config).from_dict(config.to_dict()), config.id2label
    assert read is not None
    assert again.id2label == read == {**dict(enumerate(names)), 2: read[2]}


def test_embedders_are_frozen_and_drop_nothing(tagger):
    before = {name: value.clone() for name, value in tagger.model.features.state_dict().items()}
    tagger.train()
    assert not any(module.training for module in tagger.model.features.modules())
    optimizer = torch.optim.Adam([each for each in tagger.parameters() if each.requires_grad], 0.1)
    inputs = padded(SENTENCES)
    tagger(**inputs, labels=torch.zeros_like(inputs["input_ids"])).loss.backward()
    optimizer.step()
    assert_close(tagger.model.features.state_dict(), before, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", MAKERS)
def test_what_is_remembered_of_a_new_tagger_is_what_it_says_in_evaluation(name, sources):
    tagger = build_new_tagger(sources, name)
    assert tagger.training
    word_features.KEPT.clear()
    tagger.remember(SENTENCES)
    features = tagger.eval().model.features
    kept = word_features.KEPT[features.digest()]
    expected = features.compute_frozen(SENTENCES)
    assert_close([kept[tuple(words)] for words in SENTENCES], expected, rtol=0, atol=0)


def test_embedders_learn_along_if_they_are_not_frozen(build_tagger):
    tagger = build_tagger("characters", "elmo", freezes_embeddings=False).train()
    inputs = padded(SENTENCES)
    tagger(**inputs, labels=torch.zeros_like(inputs["input_ids"])).loss.backward()
    gradients = {name: each.grad for name, each in tagger.model.features.named_parameters()}
    assert all(each is not None and each.any() for each in gradients.values())
    tagger.remember(SENTENCES)
    assert tagger.model.features.digest() not in word_features.KEPT


def test_what_is_remembered_is_not_computed_again(tagger, monkeypatch):
    expected = tagger(**padded(SENTENCES))
    tagger.remember(SENTENCES)
    monkeypatch.setattr(tagger.model.features, "compute", None)
    found = tagger(**padded(SENTENCES))
    assert_close(found.logits, expected.logits, **CLOSE)
    assert tagger.model.features(SENTENCES)[1] is tagger.model.features(SENTENCES[1:2])[0]


def test_other_weights_remember_nothing_of_these(tagger):
    tagger.remember(SENTENCES)
    with torch.no_grad():
        tagger.model.features.parts[0].model.word_vectors.weight.zero_()
    (found, *_) = tagger.model.features(SENTENCES)
    assert not found[0, :10].any()


def test_other_descriptions_of_the_same_weights_remember_nothing_of_these(build_tagger):
    one, same, other = (build_tagger("static").model.features for _ in range(3))
    other.descriptions[0]["ngram_lengths"] = [2, 3]
    assert one.digest() == same.digest() != other.digest()
