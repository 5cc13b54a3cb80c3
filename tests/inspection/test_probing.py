"""Probes find what is planted in states, not what is random, and control tasks unmask what is memorized."""

import pytest
import torch

from tercet.inspection.activation_patching import record_states
from tercet.inspection.probing import IGNORED, TokenStates, control_labels, probe_layers, token_states

from .conftest import build, packed, padded, translated

GENERATOR = torch.Generator().manual_seed(0)
NUM, WIDTH, TYPES = 600, 16, 40


def tokens(labels, types=None):
    """Make states of three layers: noise, noise with the labels in a direction, and the words alone."""
    types = torch.randint(TYPES, (NUM,), generator=GENERATOR) if types is None else types
    noise = torch.randn(NUM, WIDTH, generator=GENERATOR)
    planted = noise + 4 * labels[:, None] * torch.eye(WIDTH)[3]
    words = torch.zeros(NUM, TYPES)
    words[torch.arange(NUM), types] = 1.0
    states = torch.stack(
        [torch.nn.functional.pad(each, (0, TYPES - WIDTH)) for each in (noise, planted)] + [words]
    )
    return TokenStates(states, labels, types, torch.arange(NUM) // 10)


def test_a_planted_feature_is_recovered_with_selectivity_and_a_random_one_is_not():
    noise, planted, words = probe_layers(tokens(torch.randint(2, (NUM,), generator=GENERATOR)))
    assert planted.accuracy > 0.95
    assert planted.selectivity > 0.3
    assert abs(noise.accuracy - 0.5) < 0.1
    assert abs(noise.selectivity) < 0.15
    assert abs(words.accuracy - 0.5) < 0.15
    assert planted.majority < 0.6
    assert [planted.layer, words.layer] == [1, 2]


def test_labels_that_words_decide_are_learned_by_heart_and_not_selective():
    types = torch.randint(TYPES, (NUM,), generator=GENERATOR)
    *_, words = probe_layers(tokens(types % 2, types))
    assert words.accuracy > 0.95
    assert words.control > 0.95
    assert abs(words.selectivity) < 0.05


def test_control_labels_belong_to_words_and_have_the_shares_of_labels():
    types = torch.randint(500, (NUM,), generator=GENERATOR)
    labels = (torch.rand(NUM, generator=GENERATOR) < 0.2).long()
    control = control_labels(types, labels)
    assert all(len(control[types == word].unique()) == 1 for word in types.unique())
    assert control.float().mean() == pytest.approx(0.2, abs=0.08)
    assert not torch.equal(control, control_labels(types, labels, seed=1))


@pytest.mark.parametrize("layout", [padded, packed])
def test_states_of_labelled_tokens_are_collected(layout, texts):
    model = build("decoder")
    batch = layout(texts, "decoder")
    labels = batch["input_ids"] % 2
    labels[batch["input_ids"] == 0] = IGNORED
    labels[0, 2] = IGNORED
    found = token_states(model, [(batch, labels), (batch, labels)])
    states = record_states(model, batch)[2][labels != IGNORED]
    torch.testing.assert_close(found.states[2], states.repeat(2, 1))
    types = torch.cat([texts[0][[0, 1, 3, 4]], *texts[1:]])
    assert torch.equal(found.types, types.repeat(2))
    sizes = [len(texts[0]) - 1, len(texts[1]), len(texts[2])]
    assert found.sequences.bincount().tolist() == sizes * 2
    assert torch.equal(found.labels, found.types % 2)


def test_types_of_a_target_that_labels_alone_say_are_its_own(texts):
    model = build("seq2seq")
    labelled, whole = translated(model, texts)
    kinds = torch.where(whole["decoder_attention_mask"] > 0, labelled["labels"] % 2, IGNORED)
    found, expected = (token_states(model, [(batch, kinds)]) for batch in (labelled, whole))
    assert torch.equal(found.types, expected.types)
    torch.testing.assert_close(found.states, expected.states)


def test_labels_have_to_fit(texts):
    batch = padded(texts, "bert")
    with pytest.raises(ValueError, match="give a label for each position, -100 where there is none"):
        token_states(build("bert"), [(batch, batch["input_ids"][:, 1:])])


def test_one_label_is_too_few():
    with pytest.raises(ValueError, match="1 labels are too few for a probe"):
        probe_layers(tokens(torch.ones(NUM, dtype=torch.long)))
