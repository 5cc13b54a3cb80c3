"""PEFT adapts every member: training moves the adapter alone; merged or reloaded, it says the same."""

import copy

import pytest
import torch
import transformers
from packaging.version import Version
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers.integrations.peft import MIN_PEFT_VERSION

from .heads import CLASSIFIERS

peft = pytest.importorskip("peft", reason="PEFT is not installed")

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
GREEDY = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
TASKS = {"encoder": None, "decoder": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM"}


@pytest.fixture
def batch(tokenizer, texts):
    """Padded texts, which are their own targets."""
    inputs = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    return {**inputs, "labels": inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)}


@pytest.fixture
def train(batch):
    """Give the function that takes three steps of a model."""

    def train(model, **changes):
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
        model.train()
        for _ in range(3):
            model(**batch | changes).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.eval()

    return train


@pytest.fixture
def adapt(build, train):
    """Give the function that trains an adapter on a small member."""

    def adapt(member, kind=peft.LoraConfig, **options):
        standard = {"target_modules": "all-linear"} if kind is peft.LoraConfig else {}
        return train(peft.get_peft_model(build(member), kind(task_type=TASKS[member], **standard | options)))

    return adapt


@pytest.mark.ecosystem("peft", "`LoraConfig`: a new adapter changes nothing, a trained one itself alone")
def test_training_moves_the_adapter_alone(member, build, batch, adapt, train):
    plain = build(member)
    fresh = peft.get_peft_model(build(member), peft.LoraConfig(target_modules="all-linear"))
    assert_close(fresh(**batch).logits, plain(**batch).logits, **CLOSE)
    adapted = adapt(member)
    assert not torch.allclose(adapted(**batch).logits, plain(**batch).logits, rtol=0.1, atol=0.1)
    with adapted.disable_adapter():
        assert_close(adapted(**batch).logits, plain(**batch).logits, **CLOSE)
    assert_close(adapted.unload().state_dict(), plain.state_dict(), rtol=0, atol=0)


@pytest.mark.ecosystem("peft", "`LoraConfig`: the gradient is that of the merged weights")
def test_gradients_of_an_adapter_follow_the_chain_rule(member, build, batch):
    torch.manual_seed(1)
    options = {"target_modules": ["q_proj"], "init_lora_weights": False, "r": 4, "lora_alpha": 8}
    adapted = peft.get_peft_model(build(member), peft.LoraConfig(**options)).train()
    merged = copy.deepcopy(adapted).merge_and_unload().requires_grad_(True)
    adapted(**batch).loss.backward()
    merged(**batch).loss.backward()
    found = 0
    for name, module in adapted.get_base_model().named_modules():
        if name.endswith("q_proj"):
            down, up = module.lora_A["default"].weight, module.lora_B["default"].weight
            gradient = 2.0 * merged.get_submodule(name).weight.grad
            assert_close(up.grad, gradient @ down.T, **CLOSE)
            assert_close(down.grad, up.T @ gradient, **CLOSE)
            found += 1
    assert found == (6 if member == "seq2seq" else 2)


@pytest.mark.ecosystem("peft", "`merge_and_unload`, `save_pretrained`, `PeftModel.from_pretrained`")
def test_merged_and_reloaded_models_say_the_same(member, build, batch, adapt, tmp_path):
    adapted = adapt(member)
    expected = adapted(**batch).logits
    adapted.save_pretrained(tmp_path / "adapter")
    assert all("lora" in name for name in load_file(tmp_path / "adapter" / "adapter_model.safetensors"))
    reloaded = peft.PeftModel.from_pretrained(build(member), tmp_path / "adapter").eval()
    assert_close(reloaded(**batch).logits, expected, rtol=0, atol=0)
    merged = adapted.merge_and_unload()
    assert_close(merged(**batch).logits, expected, **CLOSE)
    merged.save_pretrained(tmp_path / "merged")
    again = type(merged).from_pretrained(tmp_path / "merged")
    assert_close(again(**batch).logits, merged(**batch).logits, rtol=0, atol=0)


@pytest.mark.ecosystem("peft", "`generate` with an adapter")
@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
def test_adapted_models_write_what_merged_ones_do(member, adapt, write, prompt):
    adapted = adapt(member)
    written = adapted.generate(input_ids=prompt, **GREEDY)
    with adapted.disable_adapter():
        without = adapted.generate(input_ids=prompt, **GREEDY)
    merged = adapted.merge_and_unload()
    assert torch.equal(written, merged.generate(prompt, **GREEDY))
    assert torch.equal(written, write(merged, prompt, 8))
    assert not torch.equal(written, without)


@pytest.mark.skipif(
    Version(peft.__version__) < Version(MIN_PEFT_VERSION),
    reason=f"transformers {transformers.__version__} needs PEFT {MIN_PEFT_VERSION} for adapters",
)
@pytest.mark.ecosystem("transformers", "`add_adapter`, `load_adapter`, `disable_adapters`")
def test_transformers_own_adapters_say_the_same(member, build, batch, train, tmp_path):
    model, plain = build(member), build(member)
    model.add_adapter(peft.LoraConfig(target_modules="all-linear"))
    expected = train(model)(**batch).logits
    model.save_pretrained(tmp_path)
    reloaded = build(member)
    reloaded.load_adapter(str(tmp_path))
    assert_close(reloaded(**batch).logits, expected, rtol=0, atol=0)
    reloaded.disable_adapters()
    assert_close(reloaded(**batch).logits, plain(**batch).logits, **CLOSE)


KINDS = {
    "`IA3Config`": (peft.IA3Config, {"target_modules": ["k_proj", "v_proj"], "feedforward_modules": []}),
    "`LoraConfig(use_dora=True)`": (peft.LoraConfig, {"use_dora": True}),
    "`PromptTuningConfig`": (peft.PromptTuningConfig, {"num_virtual_tokens": 3}),
    "`PrefixTuningConfig`": (peft.PrefixTuningConfig, {"num_virtual_tokens": 3}),
}


@pytest.mark.parametrize(
    ("member", "kind"),
    [
        pytest.param(member, kind, marks=pytest.mark.ecosystem("peft", kind))
        for kind in KINDS
        for member in TASKS
        if member != "encoder" or "Tuning" not in kind  # which PEFT has for no encoder with a vocabulary
    ],
)
def test_other_adapters_learn_and_reload(member, kind, build, batch, adapt, tmp_path):
    adapter, options = KINDS[kind]
    adapted = adapt(member, adapter, **options)
    expected = adapted(**batch)
    adapted.save_pretrained(tmp_path)
    reloaded = peft.PeftModel.from_pretrained(build(member), tmp_path).eval()
    assert_close(reloaded(**batch).logits, expected.logits, rtol=0, atol=0)
    assert expected.loss < build(member)(**batch).loss
    # In training the pads do not flow through the network.
    assert_close(adapted.train()(**batch).loss, expected.loss, **CLOSE)


@pytest.mark.ecosystem("peft", "`LoraConfig(modules_to_save=...)` on a classifier")
def test_a_new_head_is_trained_and_kept_whole(member, build, batch, train, tmp_path):
    inputs = batch | {"labels": torch.tensor([0, 1, 1, 0])}
    options = {"target_modules": ["q_proj", "v_proj"], "modules_to_save": ["classifier"]}
    options["task_type"] = "SEQ_CLS"
    model = peft.get_peft_model(build(CLASSIFIERS[member]), peft.LoraConfig(**options))
    before = model(**inputs).loss
    expected = train(model, **inputs)(**inputs)
    model.save_pretrained(tmp_path)
    reloaded = peft.PeftModel.from_pretrained(build(CLASSIFIERS[member]), tmp_path).eval()
    assert_close(reloaded(**inputs).logits, expected.logits, rtol=0, atol=0)
    assert expected.loss < before
