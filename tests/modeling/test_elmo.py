"""ELMo: states of words depend on nothing but their words, and both directions learn to predict.

The parts of an ELMo: each equals its definition, and a configuration has to describe one.

The heads of tasks on an ELMo: what they read, and what they learn.
"""

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import (
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from tercet import (
    TercetElmoConfig,
    TercetElmoForLanguageModeling,
    TercetElmoForSequenceClassification,
    TercetElmoForTokenClassification,
    TercetElmoModel,
)
from tercet.configs.recipe import load_preset
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling.recurrent.elmo import DirectedLayers, ScalarMix
from tercet.modeling.recurrent.spelling import CharacterEncoder, spelling_of
from tercet.modeling.recurrent.words import encode_words, framed

from ..small_elmo import SENTENCES, TEXTS, small_config


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, "words", 540)


@pytest.fixture
def model(tokenizer) -> TercetElmoModel:
    torch.manual_seed(0)
    model = TercetElmoModel(small_config()).double().eval()
    model.learn_spelling(tokenizer)
    return model


@pytest.fixture
def language_model(tokenizer) -> TercetElmoForLanguageModeling:
    torch.manual_seed(0)
    model = TercetElmoForLanguageModeling(small_config()).double().eval()
    model.learn_spelling(tokenizer)
    return model


def tokens_of(tokenizer, sentences, **options):
    texts = [" ".join(sentence) for sentence in sentences]
    return tokenizer(texts, padding=True, return_tensors="pt", **options)


def read(model, input_ids=None, attention_mask=None, character_ids=None):
    """Find the words of a batch and their characters, as the model does."""
    sequences = model.find_sequences(input_ids, character_ids, attention_mask, None, None)
    return model.read(sequences, input_ids, character_ids)


def test_tokens_spell_the_words_of_a_text_known_or_not(model, tokenizer):
    tokens, characters = tokens_of(tokenizer, SENTENCES), encode_words(SENTENCES)
    assert tokens["input_ids"].shape[1] > characters["character_ids"].shape[1]
    words, spelled = read(model, **tokens)
    is_word = characters["attention_mask"] == 1
    assert_close(spelled, characters["character_ids"][is_word])
    assert words.lengths.tolist() == is_word.sum(1).tolist()
    assert words.is_whole.tolist() == [True] * 4 + [False, True, False, True] + [True, False, True] + [
        *(True, True, False, True, True)
    ]


def test_what_follows_a_special_token_begins_a_word(model, tokenizer):
    inside = tokenizer.convert_tokens_to_ids("##a")
    ids = torch.tensor([[tokenizer.cls_token_id, inside, inside, tokenizer.sep_token_id]])
    words, _ = read(model, ids)
    assert words.positions.tolist() == [0, 1, 3]
    assert words.is_whole.tolist() == [True, False, True]


@pytest.mark.parametrize("words", [["bank"], ["the", "bank", "lends", "money"]])
def test_forward_states_see_no_later_word_and_backward_states_no_earlier_one(model, words):
    batch = encode_words([words])
    found, characters = read(model, **batch)
    x = model.characters(characters).detach().requires_grad_()
    model.characters = torch.nn.Identity()
    for layer in model.layers(found, x)[1:]:
        for place in range(len(x)):
            for half, seen in ((slice(0, 6), range(place + 1)), (slice(6, 12), range(place, len(x)))):
                gradient = torch.autograd.grad(layer[place, half].sum(), x, retain_graph=True)[0]
                assert (gradient != 0).any(1).nonzero().flatten().tolist() == [*seen]


def test_layer_zero_is_the_word_itself_twice(model):
    first, second = (model.embed_words([words])[0] for words in (["the", "bank"], ["money", "bank"]))
    assert_close(first[0, 1], second[0, 1])
    assert_close(first[0, :, :6], first[0, :, 6:])
    assert not torch.allclose(first[1, 1, :6], second[1, 1, :6])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("has_mask", [True, False])
def test_padded_equals_alone_and_packed(model, tokenizer, side, has_mask):
    batch = tokens_of(tokenizer, SENTENCES, padding_side=side)
    is_token = batch["attention_mask"] == 1
    rows = [ids[own] for ids, own in zip(batch["input_ids"], is_token, strict=True)]
    alone = torch.cat([model(row[None]).last_hidden_state[0] for row in rows])
    padded = model(**batch) if has_mask else model(batch["input_ids"])
    assert_close(padded.last_hidden_state[is_token], alone)
    assert not padded.last_hidden_state[~is_token].any()
    stream = torch.cat(rows)[None]
    places = torch.cat([torch.arange(len(row)) for row in rows])[None]
    bounds = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0).int()
    assert_close(model(stream, position_ids=places).last_hidden_state[0], alone)
    packed = model(stream, cu_seq_lens_q=bounds).last_hidden_state[0]
    assert_close(packed, alone)
    weights = torch.randn_like(alone)
    learned = [*model.parameters()]
    results = (alone, packed, padded.last_hidden_state[is_token])
    first, *others = (torch.autograd.grad((each * weights).sum(), learned) for each in results)
    for gradients in others:
        assert_close(gradients, first)


def test_tokens_and_characters_have_the_same_states(model, tokenizer):
    tokens = tokens_of(tokenizer, SENTENCES[:1])
    states = model(**tokens, output_hidden_states=True).hidden_states
    words, _ = read(model, **tokens)
    of_words = torch.stack(states)[:, 0, words.positions[1:-1]]
    assert_close(model.embed_words(SENTENCES[:1])[0], of_words)
    assert_close(states[-1][0], states[-1][0, words.positions[words.word_of_token]])


@pytest.mark.parametrize("part", ["model", "language_model"])
def test_recorded_layers_are_those_of_the_words_and_pass_gradients(part, request, tokenizer):
    model, tokens = request.getfixturevalue(part), tokens_of(tokenizer, SENTENCES)
    plain, outputs = model(**tokens), model(**tokens, output_hidden_states=True)
    base = model if part == "model" else model.model
    words, characters = read(base, **tokens)
    layers = base.layers(words, characters)
    # A product's last bits depend on where in memory its numbers lie.
    assert_close(outputs.hidden_states, tuple(map(words.to_tokens, layers)), rtol=1e-12, atol=1e-15)
    for name, expected in plain.items():
        assert_close(outputs[name], expected, rtol=1e-12, atol=1e-15)
    for each in outputs.hidden_states:
        each.retain_grad()
    outputs[0].square().sum().backward()
    assert all(each.grad is not None and each.grad.any() for each in outputs.hidden_states)


def test_the_vectors_of_characters_are_the_input_embeddings(language_model):
    table = language_model.get_input_embeddings()
    assert (
        table
        is language_model.model.get_input_embeddings()
        is language_model.model.characters.embed_characters
    )
    with pytest.raises(ValueError, match="ELMo reads bytes, whatever the vocabulary"):
        language_model.resize_token_embeddings(600)
    assert language_model.config.vocab_size == 540
    assert len(table.weight) == 262


def test_one_input_is_needed_and_tokens_have_to_be_spelled():
    model = TercetElmoModel(small_config())
    ids = torch.tensor([[5, 6]])
    with pytest.raises(
        ValueError, match=r"does not know how its tokens are spelled: call model\.learn_spell"
    ):
        model(ids)
    with pytest.raises(ValueError, match="give input_ids or character_ids, one of them"):
        model()
    with pytest.raises(ValueError, match=r"a batch of \(1, 2\) holds pads alone"):
        model(character_ids=torch.zeros(1, 2, 50, dtype=torch.long))


def test_other_tokenizers_and_larger_ones_are_refused(tokenizer):
    other = train_tokenizer(TEXTS, "wordpiece", 60)
    with pytest.raises(ValueError, match=r"does not know words and their bytes.*tokenizer\.kind: words"):
        spelling_of(other)
    with pytest.raises(ValueError, match=r"has 5\d\d tokens, but vocab_size is 100: build"):
        TercetElmoModel(small_config(vocab_size=100)).learn_spelling(tokenizer)


@pytest.mark.parametrize("is_training", [True, False])
def test_the_losses_are_those_of_the_words_on_both_sides(language_model, tokenizer, is_training):
    batch = tokens_of(tokenizer, SENTENCES)
    output = language_model.train(is_training)(**batch, labels=batch["input_ids"], output_hidden_states=True)
    known, unknown = tokenizer.get_vocab(), tokenizer.unk_token_id
    losses = {1: [], -1: []}
    for sentence in SENTENCES:
        ids = [known.get(word, unknown) for word in sentence]
        ids = [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
        layers = language_model.model(**encode_words([sentence])).last_hidden_state[0]
        assert layers.shape[0] == len(ids)
        for offset, half in ((1, slice(0, 6)), (-1, slice(6, 12))):
            scores = language_model.lm_head(layers[:, half]).log_softmax(-1)
            places = [place for place in range(len(ids)) if 0 <= place + offset < len(ids)]
            losses[offset] += [-scores[place, ids[place + offset]] for place in places]
        assert output.hidden_states[0].shape[:2] == batch["input_ids"].shape
    expected = {offset: torch.stack(each).mean() for offset, each in losses.items()}
    assert_close(output.forward_loss, expected[1])
    assert_close(output.backward_loss, expected[-1])
    assert_close(output.loss, (expected[1] + expected[-1]) / 2)
    assert (output.forward_logits is None) == is_training
    learned = [*language_model.parameters()]
    of_output, of_definition = (
        torch.autograd.grad(each, learned) for each in (output.loss, (expected[1] + expected[-1]) / 2)
    )
    assert_close(of_output, of_definition)


def test_logits_are_computed_where_they_are_kept(language_model, tokenizer):
    ids = tokens_of(tokenizer, SENTENCES[:1])["input_ids"]
    whole = language_model(ids)
    kept = language_model(ids, logits_to_keep=torch.tensor([0, 3]))
    assert_close(kept.forward_logits, whole.forward_logits[:, [0, 3]])
    assert_close(kept.backward_logits, whole.backward_logits[:, [0, 3]])


def test_unknown_words_need_an_id_and_ignored_ones_none(language_model, tokenizer):
    ids = tokens_of(tokenizer, SENTENCES[:1])["input_ids"]
    nothing = language_model(ids, labels=torch.full_like(ids, -100))
    assert nothing.loss == 0
    language_model.config.unk_token_id = None
    with pytest.raises(ValueError, match="unk_token_id is None: set it"):
        language_model(ids, labels=ids)


def test_a_saved_model_reads_tokens_again(language_model, tokenizer, tmp_path):
    batch = tokens_of(tokenizer, SENTENCES)
    language_model.save_pretrained(tmp_path)
    again = AutoModelForPreTraining.from_pretrained(tmp_path)
    assert isinstance(again, TercetElmoForLanguageModeling)
    expected = language_model(**batch, labels=batch["input_ids"])
    assert_close(again(**batch, labels=batch["input_ids"]).loss, expected.loss)
    base = AutoModel.from_pretrained(tmp_path)
    assert isinstance(base, TercetElmoModel)
    assert_close(base(**batch)[0], language_model.model(**batch).last_hidden_state)


def test_new_weights_are_drawn_alike_with_and_without_a_file(model, tmp_path):
    """What is missing in a file is drawn on the way; LSTMs remember at first."""
    model.save_pretrained(tmp_path)
    loaded = TercetElmoForLanguageModeling.from_pretrained(tmp_path)
    assert loaded.lm_head.weight.std().item() == pytest.approx(0.02, rel=0.1)
    layer = loaded.model.forward_layers.layers[0]
    assert_close(layer.bias_ih_l0[9:18], model.forward_layers.layers[0].bias_ih_l0[9:18])
    fresh = TercetElmoModel(small_config())
    for stack in (fresh.forward_layers, fresh.backward_layers):
        layers: Any = stack.layers
        biases = torch.stack([each.bias_ih_l0 + each.bias_hh_l0 for each in layers])
        assert_close(biases, torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(9).expand_as(biases))
    assert (fresh.characters.highways[0].gate.bias == -2).all()


def test_a_word_is_its_bytes_between_two_marks():
    (row,) = encode_words([["cat"]], longest=7)["character_ids"]
    assert row.tolist() == [
        [259, 257, 260, *[261] * 4],
        [259, 100, 98, 117, 260, 261, 261],
        [259, 258, 260, *[261] * 4],
    ]
    assert framed(range(9), 5) == [259, 0, 1, 2, 260]


@pytest.mark.parametrize(
    ("sentences", "words"),
    [([], "there are no sentences"), (["a cat"], "a sentence is 'a cat'"), ([["a", ""]], "is empty")],
)
def test_what_is_no_list_of_words_is_refused(sentences, words):
    with pytest.raises(ValueError, match=words):
        encode_words(sentences)


def test_each_different_word_is_encoded_once_and_as_by_itself():
    torch.manual_seed(0)
    encoder = CharacterEncoder(small_config()).double()
    for words in (["a"], ["a", "cat", "a"], ["x" * 44, "b"], ["x" * 48], ["x" * 99]):
        characters = encode_words([words])["character_ids"][0]
        fast, slow = encoder(characters), encoder.encode(characters)
        assert_close(fast, slow)
        weights = torch.randn_like(fast)
        of_fast = torch.autograd.grad((fast * weights).sum(), [*encoder.parameters()])
        of_slow = torch.autograd.grad((slow * weights).sum(), [*encoder.parameters()])
        assert_close(of_fast, of_slow)


def test_the_character_encoder_equals_loops_over_places():
    torch.manual_seed(0)
    encoder = CharacterEncoder(small_config(character_embedding_size=2)).double()
    characters = encode_words([["river", "a"]], longest=50)["character_ids"][0]
    vectors = []
    for word in characters.tolist():
        embedded = [encoder.embed_characters.weight[code] for code in word]
        features = []
        for convolution in encoder.convolutions:
            width = convolution.kernel_size[0]
            for weight, bias in zip(convolution.weight, convolution.bias, strict=True):
                responses = [
                    sum(weight[:, offset] @ embedded[place + offset] for offset in range(width)) + bias
                    for place in range(len(embedded) - width + 1)
                ]
                features.append(torch.stack(responses).amax().clamp(min=0))
        x = torch.stack(features)
        highways: Any = encoder.highways
        for highway in highways:
            transformed = (highway.transform.weight @ x + highway.transform.bias).clamp(min=0)
            gate = 1 / (1 + torch.exp(-(highway.gate.weight @ x + highway.gate.bias)))
            x = gate * transformed + (1 - gate) * x
        vectors.append(encoder.projection.weight @ x + encoder.projection.bias)
    assert_close(encoder(characters), torch.stack(vectors))


def test_lstm_layers_equal_a_loop_over_words():
    torch.manual_seed(0)
    layers = DirectedLayers(small_config(num_hidden_layers=3)).double()
    x = torch.randn(2, 4, 6, dtype=torch.double, requires_grad=True)
    fast, slow, read = [], [], x
    for number in range(3):
        fast.append(layers.read(number, fast[-1] if fast else x))
    lstms: Any = layers.layers
    for layer in lstms:
        output, cell = torch.zeros(2, 6).double(), torch.zeros(2, 9).double()
        outputs = []
        for word in read.unbind(1):
            gates = word @ layer.weight_ih_l0.T + output @ layer.weight_hh_l0.T
            enter, forget, new, leave = (gates + layer.bias_ih_l0 + layer.bias_hh_l0).chunk(4, dim=1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            output = (leave.sigmoid() * cell.tanh()) @ layer.weight_hr_l0.T
            outputs.append(output)
        read = torch.stack(outputs, 1) + (read if slow else 0)
        slow.append(read)
    assert_close(fast, slow)
    learned = [x, *layers.parameters()]
    assert_close(*(torch.autograd.grad(torch.stack(each).pow(2).sum(), learned) for each in (fast, slow)))


def test_the_scalar_mix_is_the_papers_equation():
    layers = [torch.randn(2, 3, 4) for _ in range(3)]
    mix = ScalarMix(3)
    assert_close(mix(layers), sum(layers) / 3)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
        mix.gamma.fill_(0.7)
    powers = [torch.tensor(w).exp() for w in (0.5, -1.0, 2.0)]
    by_hand = sum(0.7 * power / sum(powers) * layer for power, layer in zip(powers, layers, strict=True))
    assert_close(mix(layers), by_hand)
    assert_close(mix.squares().item(), 0.25 + 1 + 4)
    with pytest.raises(ValueError, match="2 layers to mix, but 3 weights"):
        mix(layers[:2])


def test_the_published_model_has_as_many_parameters_as_published():
    """93.6 million without the softmax; torch's LSTM has two biases where one does."""
    values = load_preset("elmo-original")
    with torch.device("meta"):
        model = TercetElmoModel(
            TercetElmoConfig(**{key: values[key] for key in values if key != "model_type"})
        )
    counts = {name: parameter.numel() for name, parameter in model.named_parameters()}
    second_biases = [count for name, count in counts.items() if "bias_hh" in name]
    assert sum(second_biases) == 4 * 4 * 4096
    assert sum(counts.values()) - sum(second_biases) == 93_600_864


def test_the_published_configuration_is_the_default():
    values = load_preset("elmo-original")
    default = TercetElmoConfig(vocab_size=values["vocab_size"])
    assert TercetElmoConfig(**{key: values[key] for key in values if key != "model_type"}) == default


TASKS = {
    TercetElmoForSequenceClassification: AutoModelForSequenceClassification,
    TercetElmoForTokenClassification: AutoModelForTokenClassification,
}


@pytest.fixture(scope="module")
def batch():
    tokenizer = train_tokenizer(TEXTS, "words", 540)
    texts = [" ".join(words) for words in SENTENCES]
    return tokenizer, tokenizer(texts, padding=True, return_tensors="pt")


@pytest.fixture
def build(batch):
    def build(task, **fields):
        torch.manual_seed(0)
        model = task(small_config(num_labels=3, **fields)).eval()
        model.learn_spelling(batch[0])
        torch.nn.init.normal_(model.mix.weights)
        return model

    return build


def labels_of(task, batch):
    is_of_tokens = task is TercetElmoForTokenClassification
    return torch.randint(3, batch["input_ids"].shape if is_of_tokens else (len(SENTENCES),))


def test_sequences_are_read_from_the_mean_of_the_mix(build, batch):
    model = build(TercetElmoForSequenceClassification)
    output = model(**batch[1], output_hidden_states=True)
    states = model.mix(output.hidden_states)
    is_token = batch[1]["attention_mask"] == 1
    means = torch.stack([row[own].mean(0) for row, own in zip(states, is_token, strict=True)])
    assert_close(output.logits, model.classifier.out_proj(means))


@pytest.mark.parametrize("task", TASKS)
def test_losses_are_those_of_the_labels_and_of_the_mix(build, batch, task):
    model, labels = build(task, mix_penalty=0.3), labels_of(task, batch[1])
    output = model(**batch[1], labels=labels)
    if task is TercetElmoForTokenClassification:
        labels = labels.masked_fill(batch[1]["attention_mask"] == 0, -100)
    penalty = 0.3 * model.mix.weights.pow(2).sum()
    assert_close(output.loss, F.cross_entropy(output.logits.flatten(0, -2), labels.flatten()) + penalty)
    output.loss.backward()
    learned = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not learned


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("reads", ["input_ids", "character_ids"])
@pytest.mark.parametrize("task", TASKS)
def test_pads_are_found_without_a_mask(build, batch, task, reads, mode):
    model = build(task)
    getattr(model, mode)()
    inputs = encode_words(SENTENCES) if reads == "character_ids" else dict(batch[1])
    given, mask = inputs[reads], inputs["attention_mask"]
    labels = labels_of(task, {"input_ids": mask})  # pads have some, too
    masked = model(**{reads: given}, attention_mask=mask, labels=labels, output_hidden_states=True)
    bare = model(**{reads: given}, labels=labels, output_hidden_states=True)
    assert_close(bare, masked, rtol=0, atol=0)
    if task is TercetElmoForTokenClassification:
        alone = F.cross_entropy(bare.logits[mask == 1], labels[mask == 1])
        assert_close(bare.loss, alone)


@pytest.mark.parametrize("task", TASKS)
def test_packed_words_are_told_by_positions_that_restart(build, task):
    model = build(task)
    rows = [encode_words([words])["character_ids"] for words in SENTENCES]
    positions = torch.cat([torch.arange(row.shape[1]) for row in rows])[None]
    packed = model(character_ids=torch.cat(rows, dim=1), position_ids=positions).logits
    alone = [model(character_ids=row).logits for row in rows]
    assert_close(packed, torch.cat(alone, dim=1 if task is TercetElmoForTokenClassification else 0))


@pytest.mark.parametrize("task", TASKS)
def test_packed_texts_have_the_labels_of_texts_alone(build, batch, task):
    model = build(task)
    is_token = batch[1]["attention_mask"] == 1
    rows = [ids[own] for ids, own in zip(batch[1]["input_ids"], is_token, strict=True)]
    bounds = torch.tensor([0, *map(len, rows)]).cumsum(0).int()
    packed = model(torch.cat(rows)[None], cu_seq_lens_q=bounds).logits
    alone = [model(row[None]).logits for row in rows]
    is_of_tokens = task is TercetElmoForTokenClassification
    assert_close(packed, torch.cat(alone, dim=1 if is_of_tokens else 0))


@pytest.mark.parametrize("task", TASKS)
def test_auto_classes_load_what_was_saved(build, batch, task, tmp_path):
    model = build(task)
    model.save_pretrained(tmp_path)
    loaded = TASKS[task].from_pretrained(tmp_path)
    assert type(loaded) is task
    assert_close(loaded(**batch[1]).logits, model(**batch[1]).logits)
