"""Number formats: what `auto` takes, and float32 products that stay float32."""

import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from transformers.distributed.fsdp import is_fsdp_enabled

from tercet.training.checkpoints.checkpoint import CHECKPOINTS
from tercet.training.checkpoints.recovery import precision_kept
from tercet.training.devices.precision import (
    FLOAT32_ERROR,
    agreed_precision,
    build_accelerator,
    choose_precision,
    computes_on_cpu,
    fast_bfloat16,
    fastest_float32_products,
    join_processes,
    precision_in_words,
    precision_of,
    product_error,
    products_in,
)
from tercet.training.recipe import TrainingRecipe

CPU = torch.device("cpu")


def test_the_fastest_products_are_still_float32_and_the_setting_returns():
    before = torch.get_float32_matmul_precision()
    with fastest_float32_products(CPU):
        assert product_error(CPU) < FLOAT32_ERROR
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("shape", [(7, 33, 65), (256, 1024, 31), (64, 64, 2048)])
def test_products_of_any_shape_are_still_float32(shape):
    rows, inner, columns = shape
    left, right = torch.randn(rows, inner), torch.randn(columns, inner)
    exact = left.double() @ right.double().T
    with fastest_float32_products(CPU):
        found = torch.nn.functional.linear(left, right)
    assert float((found - exact).norm() / exact.norm()) < FLOAT32_ERROR


@pytest.mark.parametrize("error", [1e-3, torch.nan])
def test_a_setting_that_rounds_is_not_kept(error, monkeypatch):
    monkeypatch.setattr("tercet.training.devices.precision.product_error", lambda device: error)
    before = torch.get_float32_matmul_precision()
    with fastest_float32_products(CPU):
        assert torch.get_float32_matmul_precision() == before


PROCESSORS = [
    ({"amx_bf16": True, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, "linux", "bf16 (AMX)"),
    ({"avx512_bf16": True, "cpu_name": "Intel Xeon"}, "linux", "fp32 (bf16 is not faster here)"),
    ({"avx512_bf16": True, "cpu_name": "AMD EPYC 9R14"}, "linux", "bf16 (AVX-512 BF16 of AMD)"),
    ({"bf16": True}, "linux", "bf16 (Arm BF16)"),
    ({"bf16": True}, "darwin", "fp32 (bf16 is not faster here)"),
    ({}, "linux", "fp32 (bf16 is not faster here)"),
]


@pytest.mark.parametrize(("has", "system", "expected"), PROCESSORS)
def test_the_processor_alone_chooses_the_format(has, system, expected, monkeypatch):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: has)
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("tercet.training.devices.precision.fast_bfloat16", fast_bfloat16.__wrapped__)
    assert precision_in_words(choose_precision("auto", CPU), CPU) == expected
    other = "fp32" if expected.startswith("bf16") else "bf16"
    assert choose_precision(other, CPU) == other
    assert precision_in_words(other, CPU) == f"{other} (as chosen)"


def test_half_precision_on_a_cpu_is_refused():
    with pytest.raises(ValueError, match="precision = fp16 on cpu: only CUDA devices support it"):
        choose_precision("fp16", CPU)


def test_a_tracker_that_is_not_installed_is_refused(toys, tmp_path):
    with pytest.raises(ValueError, match="trackers: 'abacus' is not installed"):
        build_accelerator(toys.recipe(trackers=("abacus",)), tmp_path)


def test_runs_of_different_precision_follow_each_other(toys, tmp_path):
    for precision, expected in (("bf16", torch.bfloat16), ("fp32", torch.float32)) * 2:
        accelerator = build_accelerator(toys.recipe(precision=precision), tmp_path)
        assert precision_of(accelerator) == precision
        with accelerator.autocast():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == expected


@pytest.mark.parametrize("engine", ["DEEPSPEED", "MEGATRON_LM"])
def test_an_engine_in_place_of_ours_is_refused(engine, monkeypatch, tmp_path):
    monkeypatch.setenv(f"ACCELERATE_USE_{engine}", "true")
    with pytest.raises(ValueError, match=f"ACCELERATE_USE_{engine} is set, .* use FSDP2"):
        build_accelerator(TrainingRecipe(steps=1), tmp_path)


def test_all_processes_load_models_whole_whatever_a_launcher_says(monkeypatch):
    """As `accelerate launch --use_fsdp` does by itself: all but one would have no weights that are drawn."""
    for name in ("ACCELERATE_USE_FSDP", "FSDP_CPU_RAM_EFFICIENT_LOADING"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setattr("transformers.distributed.fsdp._is_torch_distributed_initialized", lambda: True)
    assert is_fsdp_enabled()
    join_processes()
    assert not is_fsdp_enabled()
    assert not FullyShardedDataParallelPlugin(fsdp_version=2).cpu_ram_efficient_loading


def test_a_mac_computes_on_its_cpu(monkeypatch):
    """Other accelerators are used, unless the environment says otherwise."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert not computes_on_cpu()
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert computes_on_cpu()


def test_no_loss_is_divided_by_the_launchers_number_of_steps(monkeypatch, tmp_path):
    """As accelerate does by itself (`accelerate launch --gradient_accumulation_steps`; its issue 3533)."""
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    weight = torch.ones((), requires_grad=True)
    build_accelerator(TrainingRecipe(steps=1, precision="fp32"), tmp_path).backward(weight * 3)
    assert weight.grad == 3


def test_products_are_in_the_format_that_is_named():
    """And in no other one in its place where there is none of that name."""
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        with products_in(precision, CPU):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
    with pytest.raises(KeyError):
        products_in("auto", CPU)


def test_a_run_that_goes_on_keeps_the_precision_that_was_chosen_before(monkeypatch, toys, tmp_path):
    """It may go on on another processor."""
    monkeypatch.setattr("tercet.training.devices.precision.fast_bfloat16", lambda device: "AMX")
    assert agreed_precision("auto", CPU) == "bf16"
    assert agreed_precision("auto", CPU, "fp32") == "fp32"
    assert agreed_precision("bf16", CPU, "fp32") == "bf16"
    assert agreed_precision("auto", CPU, "fp16") == "bf16", "a CPU has no fp16"
    assert precision_kept(tmp_path / CHECKPOINTS) is None
    toys.train(tmp_path, toys.recipe(steps=1, checkpoint_every=1))
    assert precision_kept(tmp_path / CHECKPOINTS) == "fp32"
    (tmp_path / CHECKPOINTS / "step-00000001" / "state.json").write_text("{")
    assert precision_kept(tmp_path / CHECKPOINTS) is None
