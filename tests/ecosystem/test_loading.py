"""Ways into memory: onto devices, in half precision, piece by piece, and from the disk while computing."""

import re

import pytest
import torch
from accelerate import cpu_offload, disk_offload, infer_auto_device_map
from torch.testing import assert_close

from ..tolerances import CLOSE


def same(left, right) -> bool:
    """Return whether two models have the same weights, of the same types."""
    expected = right.state_dict()
    return all(
        value.dtype == expected[name].dtype and torch.equal(value, expected[name])
        for name, value in left.state_dict().items()
    )


@pytest.mark.parametrize("place", ["auto", "cpu", {"": "cpu"}], ids=str)
@pytest.mark.ecosystem("accelerate", "`from_pretrained(device_map=...)`")
def test_a_device_map_changes_nothing(member, layout, place, build, batch_for, tmp_path):
    model, batch = build(member, **layout), batch_for(member)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    loaded = type(model).from_pretrained(tmp_path, device_map=place)
    assert same(loaded, model)
    assert torch.equal(loaded(**batch).logits.cpu(), model(**batch).logits)


@pytest.mark.ecosystem("torch", '`torch.device("meta")`, and weights afterwards')
def test_models_planned_without_memory_take_weights(member, layout, build, batch_for):
    """A model has no numbers but its weights: wavelengths are computed when they are needed."""
    model, batch = build(member, **layout), batch_for(member)
    with torch.device("meta"):
        planned = type(model)(model.config)
    assert {weight.device.type for weight in planned.state_dict(keep_vars=True).values()} == {"meta"}
    assert not list(planned.buffers())
    planned.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(planned.eval()(**batch).logits, model(**batch).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.ecosystem("transformers", "`from_pretrained(dtype=...)`")
def test_half_precision_is_what_rounding_gives(member, layout, dtype, build, batch_for, tmp_path):
    model, batch = build(member, **layout), batch_for(member)
    model.save_pretrained(tmp_path / "whole")
    loaded = type(model).from_pretrained(tmp_path / "whole", dtype=dtype)
    half = model.to(dtype)
    assert loaded.dtype == dtype
    assert same(loaded, half)
    assert torch.equal(loaded(**batch).logits, half(**batch).logits)
    half.save_pretrained(tmp_path / "half")
    assert type(model).from_pretrained(tmp_path / "half").dtype == dtype  # as it was saved
    assert type(model).from_pretrained(tmp_path / "half", dtype="float32").dtype == torch.float32


@pytest.mark.ecosystem("accelerate", "`disk_offload`")
def test_weights_may_stay_on_the_disk(member, layout, build, batch_for, tmp_path):
    model, batch = build(member, **layout), batch_for(member)
    with torch.no_grad():
        expected = model(**batch).logits
        disk_offload(model, tmp_path, execution_device=torch.device("cpu"), offload_buffers=True)
        assert {weight.device.type for weight in model.parameters()} == {"meta"}
        assert_close(model(**batch).logits, expected, **CLOSE)


@pytest.mark.ecosystem("accelerate", "`cpu_offload`")
def test_weights_may_wait_elsewhere(member, layout, build, batch_for):
    model, batch = build(member, **layout), batch_for(member)
    with torch.no_grad():
        expected = model(**batch).logits
        cpu_offload(model, execution_device=torch.device("cpu"))
        assert_close(model(**batch).logits, expected, **CLOSE)


@pytest.mark.ecosystem("accelerate", "`infer_auto_device_map`, and `from_pretrained(offload_folder=...)`")
def test_whole_blocks_may_stay_on_the_disk(member, layout, build, batch_for, tmp_path):
    model, batch = build(member, **layout), batch_for(member)
    model.save_pretrained(tmp_path / "model")
    size = sum(weight.numel() * weight.itemsize for weight in model.parameters())
    places = infer_auto_device_map(model, {"cpu": 3 * size // 4, "disk": 10 * size}, model._no_split_modules)
    assert set(places.values()) == {"cpu", "disk"}
    assert not any(re.search(r"layers\.\d+\.", name) for name in places)
    places_of = {"device_map": places, "offload_folder": tmp_path / "offload"}
    loaded = type(model).from_pretrained(tmp_path / "model", **places_of)
    assert {weight.device.type for weight in loaded.parameters()} == {"cpu", "meta"}
    with torch.no_grad():
        assert_close(loaded(**batch).logits, model(**batch).logits, **CLOSE)
    if model.can_generate():
        prompt, greedy = (
            batch["input_ids"][1:],
            {"do_sample": False, "max_new_tokens": 4, "eos_token_id": None},
        )
        assert torch.equal(loaded.generate(prompt, **greedy), model.generate(prompt, **greedy))
