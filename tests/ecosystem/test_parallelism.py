"""Models on several devices: plans name what there is, and two processes compute and learn what one does."""

import re

import pytest
import torch
from torch.testing import assert_close

from tercet import TercetDecoderForMaskedLM

from ..architectures import ARCHITECTURES

PROCESS = """
import sys
from pathlib import Path

import tercet
import torch
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

def results(model, batch):
    with torch.no_grad():
        found = {"logits": model.eval()(**batch).logits}
    if model.can_generate():
        prompt = batch["input_ids"][1:]
        found["written"] = model.generate(prompt, do_sample=False, max_new_tokens=4, eos_token_id=None)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    found["loss"] = model.train()(**batch, labels=batch.get("decoder_input_ids", labels)).loss
    found["loss"].backward()
    found |= {name: weight.grad for name, weight in model.named_parameters()}
    return {name: whole(value).detach() for name, value in found.items()}

def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
for path in sorted(Path(sys.argv[1]).iterdir()):
    architecture, batch = torch.load(path / "batch.pt", weights_only=True)
    for name, share in {"one": {}, "tp": {"tp_size": 2}, "fsdp": {"fsdp_size": 2}}.items():
        arguments = {"distributed_config": DistributedConfig(**share)} if share else {}
        model = getattr(tercet, architecture).from_pretrained(path, **arguments)
        assert any(isinstance(weight, DTensor) for weight in model.parameters()) == bool(share)
        found = results(model, batch)
        if torch.distributed.get_rank() == 0:
            torch.save(found, path / f"{name}.pt")
torch.distributed.destroy_process_group()
"""


def generic(names) -> set[str]:
    """Replace the numbers of layers by a star, as plans do."""
    return {re.sub(r"\.\d+(?=\.|$)", ".*", name) for name in names}


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda architecture: architecture.__name__)
def test_plans_name_modules_that_exist(architecture, layout, build):
    if architecture is TercetDecoderForMaskedLM and layout.get("position_embedding_type") == "relative_bias":
        pytest.skip("the masked reading refuses a bias that is learned for one direction")
    model = build(architecture, **layout)
    names = generic(name for name, _ in model.named_modules())
    assert model.supports_tp_plan
    assert model.tp_plan.keys() | model.fsdp_plan.keys() <= names


def test_blocks_are_kept_together_and_all_their_linear_layers_shared_out(member, layout, build):
    model = build(member, **layout)
    modules = dict(model.named_modules())
    blocks = [name for name, module in modules.items() if type(module).__name__ in model._no_split_modules]
    assert len(blocks) == (4 if member == "seq2seq" else 2)
    assert generic(blocks) == model.fsdp_plan.keys()
    linear = {name for name, module in modules.items() if isinstance(module, torch.nn.Linear)}
    assert generic(linear) - model.tp_plan.keys() <= {"transform.dense"}


@pytest.fixture(scope="module")
def shared_out(build, batch_for, layouts, tmp_path_factory, fork_server):
    """Let two processes share out a model of every member and layout; give the folder of their results."""
    folder = tmp_path_factory.mktemp("shared")
    for member in ("encoder", "decoder", "seq2seq"):
        for layout, fields in layouts.items():
            model = build(member, **fields)
            for parameter in model.parameters():
                parameter.data += 0.1 * torch.randn_like(parameter)  # biases start at zero, all alike
            model.save_pretrained(folder / f"{member}-{layout}")
            torch.save((type(model).__name__, batch_for(member)), folder / f"{member}-{layout}" / "batch.pt")
    processes = fork_server.start(PROCESS, str(folder), processes=2)
    status, said = fork_server.wait(processes), processes.output.read_text()
    assert status == 0, said
    return folder


SHARED = [
    pytest.param("tp", marks=pytest.mark.ecosystem("transformers", "`DistributedConfig(tp_size=2)`")),
    pytest.param("fsdp", marks=pytest.mark.ecosystem("transformers", "`DistributedConfig(fsdp_size=2)`")),
]


@pytest.mark.parametrize("share", SHARED)
def test_two_processes_compute_and_learn_what_one_does(member, share, layouts, shared_out):
    for layout in layouts:
        path = shared_out / f"{member}-{layout}"
        expected, found = (torch.load(path / f"{name}.pt", weights_only=True) for name in ("one", share))
        assert_close(found, expected, rtol=1e-3, atol=1e-4)


def assert_checkpoints_change_no_gradient(model, batch, **options) -> None:
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    batch["labels"] = batch.get("decoder_input_ids", labels)

    def gradients():
        torch.manual_seed(1)  # what is dropped is dropped again
        model.zero_grad()
        model(**batch).loss.backward()
        return {name: weight.grad.clone() for name, weight in model.named_parameters()}

    expected = gradients()
    model.gradient_checkpointing_enable(options)
    assert model.is_gradient_checkpointing
    assert_close(gradients(), expected)
    model.gradient_checkpointing_disable()
    assert_close(gradients(), expected, rtol=0, atol=0)


RENAMED = pytest.mark.filterwarnings("ignore::FutureWarning")  # 5.23 has new names for the three methods


@RENAMED
@pytest.mark.ecosystem("transformers", "`gradient_checkpointing_enable()`")
def test_gradient_checkpointing_changes_no_gradient(member, layout, build, batch_for):
    model = build(member, **layout, dropout=0.1).train()
    assert_checkpoints_change_no_gradient(model, batch_for(member), use_reentrant=False)


@RENAMED
@pytest.mark.parametrize("layout", ["modern", "classic", "sliding"], indirect=True)
@pytest.mark.ecosystem("transformers", '`gradient_checkpointing_enable({"use_reentrant": True})`')
def test_reentrant_checkpoints_change_none_either(member, layout, build, batch_for):
    """They do not see what packed sequences carry along: with relative biases, a bias that has a gradient."""
    model = build(member, **layout, dropout=0.1).train()
    assert_checkpoints_change_no_gradient(model, batch_for(member), use_reentrant=True)
