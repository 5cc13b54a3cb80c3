"""The character language model: states, losses and layouts, against a loop over single characters."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForPreTraining

from tercet.modeling import TercetCharacterConfig, TercetCharacterLanguageModel, TercetCharacterModel
from tercet.modeling.heads.losses import IGNORE
from tercet.modeling.recurrent.character import CharacterReader

VOCABULARY, WIDTH = 17, 12
LENGTHS = (7, 3, 5)


def build(**fields) -> TercetCharacterLanguageModel:
    torch.manual_seed(0)
    given = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "embedding_size": 6, "dropout": 0.0}
    return TercetCharacterLanguageModel(
        TercetCharacterConfig(**{**given, "initializer_range": 0.5, **fields})
    )


@pytest.fixture(params=[1, 2], ids=["one layer", "two layers"])
def model(request) -> TercetCharacterLanguageModel:
    return build(num_hidden_layers=request.param).eval()


@pytest.fixture
def texts() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, VOCABULARY, (length,), generator=generator) for length in LENGTHS]


def read_slowly(reader: CharacterReader, text: Tensor) -> Tensor:
    """The definition of an LSTM (Hochreiter and Schmidhuber, 1997), one character after another: (T, C)."""
    inputs = reader.embed_tokens.weight[text]
    for layer in range(reader.lstm.num_layers):
        weights = [getattr(reader.lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh")]
        biases = [getattr(reader.lstm, f"{name}_l{layer}") for name in ("bias_ih", "bias_hh")]
        state = cell = torch.zeros(WIDTH)
        states = []
        for x in inputs:
            gates = weights[0] @ x + biases[0] + weights[1] @ state + biases[1]
            into, forget, change, out = gates.chunk(4)
            cell = forget.sigmoid() * cell + into.sigmoid() * change.tanh()
            state = out.sigmoid() * cell.tanh()
            states.append(state)
        inputs = torch.stack(states)
    return inputs


def states_slowly(model: TercetCharacterModel, text: Tensor) -> Tensor:
    """The states of both directions, (T, 2 C)."""
    forward = read_slowly(model.forward_reader, text)
    return torch.cat([forward, read_slowly(model.backward_reader, text.flip(0)).flip(0)], dim=-1)


def losses_slowly(model: TercetCharacterLanguageModel, text: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The losses of both directions, character by character."""
    forward, backward = states_slowly(model.model, text).chunk(2, dim=-1)
    sums = [torch.zeros(()), torch.zeros(())]
    for place, label in enumerate(labels.tolist()):
        if label != IGNORE and place > 0:
            logits = model.forward_prediction(forward[place - 1])
            sums[0] = sums[0] - logits.log_softmax(-1)[label]
        if label != IGNORE and place + 1 < len(text):
            logits = model.backward_prediction(backward[place + 1])
            sums[1] = sums[1] - logits.log_softmax(-1)[label]
    return sums[0], sums[1]


def padded(rows: list[Tensor], side: str, fill: int = 0) -> Tensor:
    longest = max(map(len, rows)) + 1
    missing = [longest - len(row) for row in rows]
    return torch.stack(
        [
            F.pad(row, (0, count) if side == "right" else (count, 0), value=fill)
            for row, count in zip(rows, missing, strict=True)
        ]
    )


def bounds(texts: list[Tensor]) -> Tensor:
    return torch.tensor([0, *torch.tensor([len(text) for text in texts]).cumsum(0)], dtype=torch.int32)


def positions(texts: list[Tensor]) -> Tensor:
    return torch.cat([torch.arange(len(text)) for text in texts])[None]


def layouts(texts: list[Tensor], labels: list[Tensor]) -> dict[str, dict[str, Tensor]]:
    """The same texts, given in every way."""
    masks = [torch.ones_like(text) for text in texts]
    packed = {"input_ids": torch.cat(texts)[None], "labels": torch.cat(labels)[None]}
    ways = {
        side: {
            "input_ids": padded(texts, side),
            "attention_mask": padded(masks, side),
            "labels": padded(labels, side, fill=3),  # nothing is learned of pads, whatever their labels
        }
        for side in ("right", "left")
    }
    return ways | {
        "packed": packed | {"cu_seq_lens_q": bounds(texts)},
        "restarting": packed | {"position_ids": positions(texts)},
    }


WAYS = ("right", "left", "packed", "restarting")


@pytest.mark.parametrize("way", WAYS)
def test_states_are_those_of_a_loop_over_single_characters(way, model, texts):
    inputs = layouts(texts, texts)[way]
    del inputs["labels"]
    states = model.model(**inputs).last_hidden_state
    is_real = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])) != 0
    assert_close(states[is_real], torch.cat([states_slowly(model.model, text) for text in texts]))
    assert not states[~is_real].any()
    assert_close(model(**inputs).last_hidden_state, states)


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("way", WAYS)
def test_losses_and_gradients_are_those_of_a_loop_over_single_characters(way, is_training, model, texts):
    labels = [text.clone() for text in texts]
    labels[0][:2] = labels[0][5:] = labels[2][0] = IGNORE  # context
    slow = [losses_slowly(model, *pair) for pair in zip(texts, labels, strict=True)]
    expected = [sum(direction) for direction in zip(*slow, strict=True)]
    of_weights = torch.autograd.grad(sum(expected), list(model.parameters()))
    outputs = model.train(is_training)(**layouts(texts, labels)[way], reduction="sum")
    assert_close([outputs.forward_loss, outputs.backward_loss], expected)
    assert_close(outputs.loss, sum(expected))
    assert (outputs.forward_logits is None) == is_training
    found = torch.autograd.grad(outputs.loss, list(model.parameters()))
    assert_close(found, of_weights)


def test_a_batch_without_targets_has_no_loss(model, texts):
    text = texts[0][None]
    assert model.train()(text, labels=torch.full_like(text, IGNORE)).loss == 0


@pytest.mark.parametrize(
    "fields", [{}, {"tie_word_embeddings": True, "head_transform": True}], ids=["", "tied"]
)
def test_auto_classes_load_what_was_saved(fields, texts, tmp_path):
    model, text = build(**fields).eval(), texts[0][None]
    model.save_pretrained(tmp_path)
    again = AutoModelForPreTraining.from_pretrained(tmp_path)
    assert type(again) is TercetCharacterLanguageModel
    assert_close(again(text).to_tuple(), model(text).to_tuple(), rtol=0, atol=0)
    base, found = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not found["missing_keys"]
    assert_close(base(text).last_hidden_state, model.model(text).last_hidden_state, rtol=0, atol=0)
    for prediction, reader in zip(again.predictions, again.model.readers, strict=True):
        assert (prediction.lm_head.weight is reader.embed_tokens.weight) == bool(fields)


def test_dropout_is_of_training_alone(texts):
    model, text = build(dropout=0.5), texts[0][None]
    losses = [model.train()(text, labels=text).loss for _ in range(2)]
    assert losses[0] != losses[1]
    assert model.eval()(text, labels=text).loss == model(text, labels=text).loss


def test_tied_predictions_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"tied to token embeddings of embedding_size \(6\)"):
        build(tie_word_embeddings=True)


def test_what_only_other_members_have_is_refused(model, texts):
    text = texts[0][None]
    with pytest.raises(ValueError, match="output_attentions is True, but a character model has only"):
        model(text, output_attentions=True)
    for refused in (
        model.set_input_embeddings,
        lambda table: model.resize_token_embeddings(len(table.weight)),
    ):
        with pytest.raises(ValueError, match="two tables of vectors"):
            refused(torch.nn.Embedding(3, 6))
    assert len(model.get_input_embeddings().weight) == model.config.vocab_size  # as it was
    for nothing in ({"input_ids": text[:0]}, {"input_ids": text, "attention_mask": torch.zeros_like(text)}):
        with pytest.raises(ValueError, match="holds pads alone: give at least one character"):
            model(**nothing)
    with pytest.raises(ValueError, match="cu_seq_lens_q is"):
        model(text, cu_seq_lens_q=torch.tensor([0, 3]))
