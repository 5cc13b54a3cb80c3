"""What is not about attention serves members that have none; what Transformers write to files stays."""

import json
import math
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from torch.testing import assert_close
from transformers.modeling_outputs import CausalLMOutput

from tercet.modeling.configuration_neural import NeuralConfig
from tercet.modeling.configuration_tercet import SHARED_FIELDS
from tercet.modeling.heads.losses import next_tokens, take_loss_arguments
from tercet.modeling.layers.position_wise import Embeddings
from tercet.modeling.layers.positions import NoPositions
from tercet.modeling.pretrained import NeuralLMHeadModel
from tercet.modeling.sequences import find_sequences

from ..architectures import CONFIGURATIONS

SERIALIZED = Path(__file__).with_name("serialized_configurations.json")


@strict
class RecurrentConfig(NeuralConfig):
    """A member without attention."""

    model_type = "test_recurrent"

    num_hidden_layers: int = 2

    def require_own_fields(self):
        if self.num_hidden_layers < 1:
            raise ValueError(f"num_hidden_layers is {self.num_hidden_layers}: choose 1 or more")


class RecurrentLanguageModel(NeuralLMHeadModel):
    """Embeddings, an LSTM, and the LM head that all members share."""

    config: RecurrentConfig
    _tied_weights_keys = {"lm_head.weight": "embeddings.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = Embeddings(config, NoPositions(config))
        self.model = nn.LSTM(config.hidden_size, config.hidden_size, config.num_hidden_layers)
        self.build_lm_head(config)
        self.post_init()

    def forward(self, input_ids, labels=None, **kwargs):
        x = self.embeddings.embed_tokens(input_ids)
        x = self.embeddings(x, None, torch.arange(input_ids.shape[1])[None])
        states = self.model(x.transpose(0, 1))[0].transpose(0, 1)
        targets = None if labels is None else next_tokens(labels, find_sequences(labels))
        loss, logits = self.compute_loss_and_logits(states, targets, 0, take_loss_arguments(kwargs))
        return CausalLMOutput(loss=loss, logits=logits)


@pytest.fixture
def model() -> RecurrentLanguageModel:
    torch.manual_seed(0)
    return RecurrentLanguageModel(RecurrentConfig(vocab_size=20, hidden_size=16, head_transform=True))


def test_a_recurrent_member_has_no_fields_of_attention():
    of_transformers = {*SHARED_FIELDS} - {*NeuralConfig.__annotations__} - {"num_hidden_layers"}
    assert {"num_attention_heads", "layer_types", "position_embedding_type"} <= of_transformers
    assert not of_transformers & {*RecurrentConfig().to_dict()}


def test_a_recurrent_member_learns_and_is_saved(model, tmp_path):
    ids = torch.randint(1, 20, (3, 7))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(40):
        losses.append(model.train()(ids, labels=ids).loss)
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0] / 2
    expected = model.eval()(ids, labels=ids)
    assert_close(model.train()(ids, labels=ids).loss, expected.loss)
    model.save_pretrained(tmp_path)
    again = RecurrentLanguageModel.from_pretrained(tmp_path)
    assert_close(again(ids).logits, expected.logits)
    assert again.lm_head.weight is again.embeddings.embed_tokens.weight


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"vocab_size": 0}, "vocab_size is 0: choose 1 or more"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"norm_bias": True}, "norm_bias=True needs norm_type='layer_norm'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ],
)
def test_a_member_checks_shared_fields_and_its_own(fields, words):
    with pytest.raises(Exception, match=words):
        RecurrentConfig(**fields)


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda configuration: configuration.model_type)
def test_what_a_configuration_writes_is_what_it_has_always_written(configuration):
    written = json.loads(configuration().to_json_string())
    del written["transformers_version"]
    assert written == json.loads(SERIALIZED.read_text(encoding="utf-8"))[configuration.model_type]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("config_class", CONFIGURATIONS)
def test_no_number_of_a_configuration_is_infinite_or_none(config_class, value):
    names = [field.name for field in fields(config_class) if "float" in str(field.type)]
    assert {"norm_eps", "initializer_range", "dropout"} <= {*names}
    for name in names:
        with pytest.raises(StrictDataclassError, match=rf"{name} is {value}: choose"):
            config_class(**{name: value})
