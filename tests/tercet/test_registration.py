"""Importing tercet takes no library, and transformers finds the models when one is looked up."""

import json
import subprocess
import sys

import pytest

LIGHT = """
import logging, sys
import tercet
tercet.pretrain, tercet.finetune, tercet.Result, dir(tercet)
try:
    tercet.pretrain("encoder-dmo")
except ValueError as error:
    print(error)
print(sorted({"torch", "transformers", "numpy"} & set(sys.modules)), logging.getLogger().handlers)
"""


def test_importing_takes_no_library_and_touches_no_logger():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    said, left = done.stdout.splitlines()
    assert "did you mean encoder-demo" in said
    assert left == "[] []"


FIRST = "import tercet; from transformers import AutoConfig; "
SECOND = "from transformers import AutoConfig; import tercet; "
LOOKED_UP = """
import sys
assert "tercet.modeling" not in sys.modules
config = AutoConfig.for_model("tercet_decoder", hidden_size=48)
assert type(config) is tercet.TercetDecoderConfig, config
assert AutoConfig.for_model("bert").model_type == "bert"
from transformers import AutoModelForMaskedLM, MODEL_MAPPING
built = AutoModelForMaskedLM.from_config(tercet.TercetEncoderConfig(hidden_size=48, vocab_size=9))
assert type(built) is tercet.TercetEncoderForMaskedLM, built
assert not any("recurrent" in name or "seq2seq" in name for name in sys.modules if "tercet" in name)
assert tercet.TercetSeq2SeqConfig in MODEL_MAPPING and tercet.TercetElmoConfig in MODEL_MAPPING
tercet.TercetDecoderModel.register_for_auto_class("AutoModel")
config.save_pretrained(sys.argv[1])
from tercet import *
TercetSeq2SeqModel, pretrain
"""


@pytest.mark.parametrize("order", [FIRST, pytest.param(SECOND, marks=pytest.mark.slow)])
def test_transformers_finds_the_models_whichever_is_imported_first(order, tmp_path):
    subprocess.run([sys.executable, "-c", order + LOOKED_UP, str(tmp_path)], check=True)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert "AutoModel" in saved["auto_map"]  # the code is written, as `registration.py` says


def test_an_unknown_transformers_gets_all_members_at_once():
    """Its tables may have changed: they are left as they are, and may have other names."""
    code = """if True:
        from collections import UserDict
        import transformers
        transformers.__version__ = "9.0.0"
        configurations = UserDict()
        table = type(transformers.CONFIG_MAPPING)
        table._extra_content = property(lambda _: configurations, lambda *_: None)
        import tercet
        assert type(transformers.AutoConfig.for_model("tercet_elmo")) is tercet.TercetElmoConfig
        model = transformers.AutoModel.from_config(tercet.TercetEncoderConfig(hidden_size=48, vocab_size=9))
        assert type(model) is tercet.TercetEncoderModel
        assert type(transformers.MODEL_MAPPING._extra_content) is dict
    """
    subprocess.run([sys.executable, "-c", code], check=True)
