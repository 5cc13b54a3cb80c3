"""The parts of an ELMo: each equals its definition, and a configuration has to describe one."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tercet import TercetElmoConfig, TercetElmoModel
from tercet.configs.recipe import load_preset
from tercet.modeling.recurrent.elmo import DirectedLayers, ScalarMix
from tercet.modeling.recurrent.spelling import CharacterEncoder, Highway
from tercet.modeling.recurrent.words import encode_words, framed

from ..small_elmo import small_config


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


def test_a_highway_layer_passes_on_what_its_gate_keeps_out():
    highway = Highway(5)
    x = torch.randn(3, 5)
    torch.nn.init.constant_(highway.gate.bias, -1e4)
    assert_close(highway(x), x)
    torch.nn.init.constant_(highway.gate.bias, 1e4)
    assert_close(highway(x), F.relu(highway.transform(x)))


def test_lstm_layers_equal_a_loop_over_words():
    torch.manual_seed(0)
    layers = DirectedLayers(small_config(num_hidden_layers=3)).double()
    x = torch.randn(2, 4, 6, dtype=torch.double, requires_grad=True)
    fast, slow, read = layers(x), [], x
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


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_size": 13}, "hidden_size is 13: choose an even one"),
        ({"lstm_cell_size": 6}, "lstm_cell_size is 6, but is projected"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"character_filters": [[60, 4]]}, r"entry \[60, 4\]: give pairs of a width from 1"),
        ({"character_filters": []}, "give pairs of a width"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True, but ELMo has no token vectors"),
        ({"mix_penalty": -1.0}, "mix_penalty is -1.0: choose 0 or more"),
    ],
)
def test_a_configuration_has_to_describe_an_elmo(fields, words):
    with pytest.raises(Exception, match=words):
        small_config(**fields)
