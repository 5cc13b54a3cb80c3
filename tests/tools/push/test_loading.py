"""What was pushed comes back in other processes, where Tercet is installed and where it is not."""

import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch

from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.tools.push.publication import prepare
from tercet.tools.push.push import push

from ...stock_models import SIZES

FIELDS = SIZES | {"vocab_size": 61, "initializer_range": 0.3}
MEMBERS = {
    "encoder": (TercetEncoderConfig, TercetEncoderForMaskedLM, "AutoModelForMaskedLM"),
    "decoder": (TercetDecoderConfig, TercetDecoderForCausalLM, "AutoModelForCausalLM"),
    "seq2seq": (TercetSeq2SeqConfig, TercetSeq2SeqForConditionalGeneration, "AutoModelForSeq2SeqLM"),
}

LOAD = """
import pathlib, re, huggingface_hub, torch
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.pt")):
    name, auto = path.stem.split(".")
    inputs, logits, ids = torch.load(path, weights_only=True)
    card = huggingface_hub.ModelCard.load(f"me/{name}").text
    loaded = {}
    exec(re.findall("```python\\n(.*?)```", card, re.DOTALL)[sys.argv[2] == "tercet."], loaded)
    model, tokenizer = loaded["model"], loaded["tokenizer"]
    assert auto in card and model.__module__.startswith(sys.argv[2])
    assert torch.equal(model.eval()(**inputs).logits, logits), name
    assert tokenizer("the cat")["input_ids"] == ids
    print(name)
"""


@pytest.fixture
def pushed(hub, tmp_path) -> Path:
    """Push the three members with tokenizers; return a folder with their inputs and outputs."""
    for name, (configuration, architecture, auto) in MEMBERS.items():
        torch.manual_seed(0)
        model = architecture(configuration(**FIELDS)).eval()
        folder = tmp_path / name
        model.save_pretrained(folder)
        tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, "characters", 61)
        tokenizer.save_pretrained(folder)
        push(prepare(folder, f"me/{name}"))
        ids = torch.randint(3, 61, (2, 5))
        inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if name == "seq2seq" else {})
        expected = (inputs, model(**inputs).logits, tokenizer("the cat")["input_ids"])
        torch.save(expected, tmp_path / f"{name}.{auto}.pt")
    return tmp_path


def run(program: str, hub, folder: Path, *options: str, module: str = "") -> list[str]:
    """Run a program in a process that takes `hub` for the Hub, and give what it printed."""
    environment = {
        "HF_ENDPOINT": hub.address,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(folder / "home"),
        "HF_TOKEN": next(iter(hub.owners)),
        "PATH": "/usr/bin:/bin",
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    done = subprocess.run(
        [sys.executable, *options, "-c", program, str(folder), module],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert environment["HF_TOKEN"] not in done.stdout + done.stderr
    return done.stdout.split()


def test_the_cards_program_loads_members_where_tercet_is_not_installed(pushed, hub):
    sites = list(dict.fromkeys(str(Path(each.__file__).parents[1]) for each in (torch, huggingface_hub)))
    begin = f"import sys; sys.path += {sites}\n"
    # Isolated from the checkout and from editable installations: tercet cannot be imported.
    end = "assert 'tercet' not in sys.modules\n"
    printed = run(begin + LOAD + end, hub, pushed, "-I", "-S", module="transformers_modules.")
    assert printed == sorted(MEMBERS)


@pytest.mark.slow
def test_the_cards_program_loads_members_where_tercet_is_installed(pushed, hub):
    assert run("import sys\n" + LOAD, hub, pushed, module="tercet.") == sorted(MEMBERS)


PUSH_TO_HUB = """
import sys, torch, transformers
from tercet import TercetDecoderConfig, TercetDecoderForCausalLM
TercetDecoderConfig.register_for_auto_class()
TercetDecoderForCausalLM.register_for_auto_class("AutoModelForCausalLM")
model = TercetDecoderForCausalLM(TercetDecoderConfig(
    vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4)).eval()
model.push_to_hub("me/pushed")
model.save_pretrained(sys.argv[1] + "/kept", push_to_hub=True, repo_id="me/saved")
ids = torch.arange(3, 9)[None]
for repo in ("me/pushed", "me/saved"):
    loaded = transformers.AutoModelForCausalLM.from_pretrained(repo)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
"""


@pytest.mark.slow
def test_transformers_own_ways_of_pushing_work_there(hub, tmp_path):
    run(PUSH_TO_HUB, hub, tmp_path)
    for repo in ("me/pushed", "me/saved"):
        files = hub.files(repo)
        code = {"configuration_tercet_decoder.py", "modeling_tercet_decoder.py"}
        assert {"config.json", "model.safetensors", *code} <= set(files)
    assert "library_name: transformers" in hub.files("me/pushed")["README.md"].decode()
