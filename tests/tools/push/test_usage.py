"""How the card says that a model is loaded: by the Auto class that finds the class it was saved with."""

from pathlib import Path
from typing import Any

import pytest
import transformers

from tercet.modeling import TercetDecoderConfig, TercetElmoConfig
from tercet.modeling.stock.architectures import ARCHITECTURES
from tercet.reports.finished_run import FinishedRun
from tercet.tools.push.model_card import Usage, loading, usage_of

PAIRS = [
    (architecture.model_type, each.stock, each.ours)
    for architecture in ARCHITECTURES.values()
    for each in architecture.counterparts
]


def usage(name: str, **fields: Any) -> Usage:
    config: Any = {"architectures": [name]} | fields
    nothing: Any = {}
    return usage_of(FinishedRun(Path(), Path(), config, nothing, nothing, nothing, None, nothing, []))


@pytest.mark.parametrize(("model_type", "stock", "ours"), PAIRS, ids=[stock for _, stock, _ in PAIRS])
def test_an_exported_model_is_loaded_as_what_it_is_and_has_the_task_of_ours(model_type, stock, ours) -> None:
    found = usage(stock)
    config_class = transformers.CONFIG_MAPPING[model_type]
    loaded = getattr(transformers, found.auto_class)._model_mapping[config_class].__name__
    if stock in ("BertForPreTraining", "BigBirdForPreTraining"):  # of whose two heads one fills masks
        stock = stock.replace("ForPreTraining", "ForMaskedLM")
    assert loaded == stock
    assert found.pipeline == usage(ours).pipeline


def test_the_card_names_the_export_that_there_is() -> None:
    decoder = TercetDecoderConfig(attention_gate="headwise").to_dict()
    for name, fields, options in (
        ("TercetDecoderForCausalLM", TercetDecoderConfig().to_dict(), ""),
        ("TercetDecoderForCausalLM", decoder, " --onnx"),
        ("TercetElmoForLanguageModeling", TercetElmoConfig().to_dict(), None),
        ("GPT2LMHeadModel", {"model_type": "gpt2"}, None),
    ):
        found = usage(name, **fields)
        assert found.export == options
        assert ("tercet export me/it FOLDER" in loading(found, "me/it", None)) == (options is not None)
        assert "tercet export" not in loading(found, "me/it", "chck_1M")
