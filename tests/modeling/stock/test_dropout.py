"""In training an imported model drops where the stock model does, and as much.

What is dropped is random: here a fixed function of each element and of the probability stands for it, so that
every place shows in the logits, and the two models must agree to rounding.
"""

import warnings

import pytest
import torch
import transformers
from torch import Tensor
from torch.testing import assert_close

from tercet.configs.recipe import load_preset
from tercet.modeling import TercetDecoderConfig, TercetDecoderForCausalLM
from tercet.modeling.layers import position_wise
from tercet.modeling.stock import from_stock, to_stock
from tercet.modeling.stock.architectures import ARCHITECTURES
from tercet.modeling.stock.certificate import answers
from tercet.modeling.stock.probes import Probe, probes_for

from .conftest import COMMON

RATES = {
    "hidden_dropout_prob": 0.11,
    "attention_probs_dropout_prob": 0.13,
    "dropout": 0.12,
    "attention_dropout": 0.14,
    "activation_dropout": 0.15,
    "dropout_rate": 0.16,
    "classifier_dropout": 0.17,
    "seq_classif_dropout": 0.18,
    "qa_dropout": 0.19,
    "summary_first_dropout": 0.21,
    "summary_last_dropout": 0.22,
    "embd_pdrop": 0.23,
    "resid_pdrop": 0.24,
    "attn_pdrop": 0.25,
    "hidden_dropout": 0.26,
    "embedding_dropout": 0.27,
    "mlp_dropout": 0.28,
}
"""Each option of a stock configuration has a value of its own."""

MODELS = sorted({each.stock for known in ARCHITECTURES.values() for each in known.counterparts})


def marked(x: Tensor, probability: float, *_: object, **__: object) -> Tensor:
    """Scale positive elements only, so that no norm undoes it; like dropout it commutes with scaling all."""
    return x + probability * x.abs()


@pytest.fixture(autouse=True)
def fixed_dropout(monkeypatch) -> None:
    """Let both sides' dropout be `marked`."""

    def of_torch(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return marked(x, p) if training and p else x

    class OfOurs:
        apply = staticmethod(marked)

    monkeypatch.setattr(torch.nn.functional, "dropout", of_torch)
    monkeypatch.setattr(position_wise, "_Drop", OfOurs)


def in_training(model, probe: Probe) -> list[Tensor]:
    """Compute what a model predicts in training."""
    for part in model.modules():  # on transformers 5.17 T5's stacks have configurations of their own
        if isinstance(part, transformers.PreTrainedModel):
            part.set_attn_implementation("eager")
    with torch.no_grad():
        return answers(model.double().train(), probe)


@pytest.mark.parametrize("name", MODELS)
def test_an_imported_model_drops_where_the_stock_model_does(stock, name: str) -> None:
    config = getattr(transformers, name).config_class
    model = stock(name, **{option: rate for option, rate in RATES.items() if option in vars(config())})
    ours = from_stock(model)
    probe = next(each for each in probes_for(model, ours, None) if not each.is_long).unpadded()
    theirs = in_training(model, probe)
    assert_close(in_training(ours, probe), theirs, rtol=1e-5, atol=1e-5, check_dtype=False)
    assert not torch.equal(theirs[0], answers(model.eval(), probe)[0])


def test_an_export_says_where_it_drops_otherwise() -> None:
    sizes = {**COMMON, "max_position_embeddings": 40, "dropout": 0.1, "attention_dropout": 0.2}
    preset = load_preset("opt-125m") | sizes
    del preset["model_type"]
    exact, other = (
        TercetDecoderForCausalLM(TercetDecoderConfig(**preset | more))
        for more in ({}, {"embedding_dropout": None})
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_stock(exact, "opt")
    with pytest.warns(UserWarning, match=r"the exported opt has embedding_dropout=0 instead of 0\.1$"):
        to_stock(other, "opt")
