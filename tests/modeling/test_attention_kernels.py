"""Which kernel computes attention: by layout, mode, implementation and cache."""

import sys
from contextlib import contextmanager

import pytest
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tercet.modeling.attention import gpu_kernels
from tercet.modeling.attention.kernels import Situation, name_kernel

NAMES = {
    "scaled_dot_product": "definition",
    "single_query_attention": "single query",
    "short_attention": "short",
    "varlen_attention": "varlen",
    "flash_attention_forward": "flash",
    "sdpa_attention_forward": "sdpa",
    "registered_attention": "registered",
}
"""Python functions that compute attention, by what they are called here."""

FUSED = "scaled_dot_product_attention"
"""torch's own, which stands in groups of packed sequences where no function above calls it."""


def flash_attention_forward(module, query, *arguments, **options):
    """Stand in for a flash kernel, which reads the bounds of packed sequences."""
    return torch.zeros_like(query.transpose(1, 2)), None


def registered_attention(module, query, *arguments, **options):
    """Stand in for a kernel that a user has registered."""
    return torch.zeros_like(query.transpose(1, 2)), None


@pytest.fixture(autouse=True)
def implementations(monkeypatch):
    """Offer stand-ins for kernels that are not installed here."""
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "flash_attention_2", flash_attention_forward)
    AttentionInterface.register("registered", registered_attention)
    AttentionMaskInterface.register("registered", sdpa_mask)


@contextmanager
def seen_kernels():
    """Collect which of the kernels compute."""
    seen: set[str] = set()

    def watch(frame, event, argument):
        if event == "call" and frame.f_code.co_name in NAMES:
            seen.add(NAMES[frame.f_code.co_name])
        if event == "c_call" and getattr(argument, "__name__", "") == FUSED:
            caller = frame.f_code.co_name
            seen.update(() if caller in NAMES else ("fused groups",))

    sys.setprofile(watch)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def inputs_of(layout: str) -> dict:
    """Make a batch of two sequences: padded, packed, or of one length."""
    ids = torch.randint(3, 61, (2, 6), generator=torch.Generator().manual_seed(0))
    if layout == "plain":
        return {"input_ids": ids}
    if layout == "padded":
        return {"input_ids": ids, "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2])}
    lengths = {"packed": [5, 7], "packed, long": [300, 4]}[layout]
    return {
        "input_ids": torch.arange(sum(lengths))[None] % 58 + 3,
        "cu_seq_lens_q": torch.tensor([0, lengths[0], sum(lengths)], dtype=torch.int32),
    }


def build(builder, member: str, implementation: str, mode: str, **options):
    """Build a model that uses an implementation of attention, in a mode."""
    dropout = {"attention_dropout": 0.1} if "dropout" in mode else {}
    model = builder(member, options.pop("variant", "modern"), "sdpa", **dropout, **options)
    model.model.config._attn_implementation_internal = implementation
    return model.train(mode.startswith("train"))


def chosen(model, layout: str, mode: str) -> str:
    """Describe which kernels compute a forward pass."""
    without_cache = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    with torch.set_grad_enabled(mode.startswith("train")), seen_kernels() as seen:
        model(**inputs_of(layout), **without_cache, output_attentions=mode == "recorded" or None)
    return ", ".join(sorted(seen))


MODES = ("eval", "train", "train with dropout", "recorded")
CHOICES = {
    ("sdpa", "plain"): ("sdpa", "sdpa", "sdpa", "definition"),
    ("sdpa", "padded"): ("sdpa", "short", "short", "definition"),
    ("sdpa", "packed"): ("short", "short", "short", "definition"),
    ("sdpa", "packed, long"): ("fused groups, short", "fused groups, short", "short", "definition"),
    ("eager", "plain"): ("definition", "definition", "definition", "definition"),
    ("eager", "padded"): ("definition", "short", "short", "definition"),
    ("eager", "packed"): ("short", "short", "short", "definition"),
    ("eager", "packed, long"): ("fused groups, short", "fused groups, short", "short", "definition"),
    **{
        (name, layout): (kernel, kernel, kernel, "definition")
        for name, kernel in (("flash_attention_2", "flash"), ("registered", "registered"))
        for layout in ("plain", "padded", "packed", "packed, long")
    },
}
"""What each implementation of attention means for a layout, in each of the modes, on a CPU."""


@pytest.mark.parametrize("variant", ["modern", "sliding", "t5"])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize(("implementation", "layout"), CHOICES)
def test_layout_mode_and_implementation_choose_the_kernel(member, variant, implementation, layout, builder):
    if variant == "t5" and implementation.startswith("flash"):
        pytest.skip("refused when the model is built: flash kernels take no bias")
    found = [
        chosen(build(builder, member, implementation, mode, variant=variant), layout, mode) for mode in MODES
    ]
    assert tuple(found) == CHOICES[implementation, layout]


GREEDY = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
GENERATIONS = {
    "greedy": ({}, "single query"),
    "beams": ({"num_beams": 2}, "single query"),
    "static cache": ({"cache_implementation": "static"}, "prompt"),
    "recorded": ({"return_dict_in_generate": True, "output_attentions": True}, "definition"),
    "without cache": ({"use_cache": False}, "prompt"),
}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("member", ["decoder", "seq2seq"])
@pytest.mark.parametrize("strategy", GENERATIONS)
def test_steps_of_decoding_have_a_kernel_of_their_own(strategy, member, implementation, builder):
    options, steps = GENERATIONS[strategy]
    model = builder(member, "modern", "eager" if strategy == "recorded" else implementation)
    prompt = "definition" if implementation == "eager" or strategy == "recorded" else "sdpa"
    expected = {prompt, prompt if steps == "prompt" else steps}
    with seen_kernels() as seen:
        model.generate(**inputs_of("padded"), **GREEDY, **options)
    assert seen == expected


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_packed_sources_and_targets_take_the_kernel_of_packed_sequences(implementation, builder):
    model = builder("seq2seq", "modern", implementation).train()
    source, bounds = inputs_of("packed"), torch.tensor([0, 300, 303], dtype=torch.int32)
    with seen_kernels() as seen:
        model(
            input_ids=source["input_ids"],
            cu_seq_lens_k=source["cu_seq_lens_q"],
            decoder_input_ids=torch.arange(303)[None] % 58 + 3,
            cu_seq_lens_q=bounds,
            use_cache=False,
        )
    # Keys decide: the source's are few, of which the long target reads.
    assert seen == {"short", "fused groups"}


@pytest.mark.parametrize(("implementation", "kernel"), [("sdpa", "sdpa"), ("eager", "definition")])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_transformed_forward_pass_has_no_kernel_with_gradients_of_its_own(
    layout, implementation, kernel, builder
):
    model = build(builder, "encoder", implementation, "train")
    inputs = inputs_of(layout)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def total(parameters):
        return torch.func.functional_call(model, parameters, (), inputs).logits.sum()

    with seen_kernels() as seen:
        torch.func.grad(total)(parameters)
    assert seen == {kernel}


HALF = {"dtype": torch.bfloat16, "width": 64, "capability": (8, 0), "dropout": 0.0, "is_cuda": True}
VARLEN = {
    "bfloat16": ({}, True),
    "float16": ({"dtype": torch.float16}, True),
    "float32": ({"dtype": torch.float32}, False),
    "widest head": ({"width": 256}, True),
    "wider head": ({"width": 264}, False),
    "wide head, little memory": ({"width": 200, "capability": (8, 9)}, False),
    "widest head, little memory": ({"width": 256, "capability": (12, 0)}, True),
    "widest head, little memory, dropout": ({"width": 256, "capability": (12, 0), "dropout": 0.1}, False),
    "narrower head, little memory, dropout": ({"width": 192, "capability": (8, 6), "dropout": 0.1}, True),
    "wide head, more memory, dropout": ({"width": 224, "capability": (10, 0), "dropout": 0.1}, True),
    "older GPU": ({"capability": (7, 5)}, False),
    "newer GPU": ({"capability": (9, 0)}, True),
    "odd width": ({"width": 20}, False),
    "dropout": ({"dropout": 0.1}, True),
    "CPU": ({"is_cuda": False}, False),
}


@pytest.mark.parametrize("case", VARLEN)
def test_what_the_kernel_of_packed_sequences_on_a_gpu_serves(case, monkeypatch):
    changes, expected = VARLEN[case]
    fields = HALF | changes
    monkeypatch.setattr(gpu_kernels, "runs", lambda *_: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: fields["capability"])
    device = torch.device("cuda" if fields["is_cuda"] else "cpu")
    situation = Situation("sdpa", "packed", device, fields["dtype"], fields["width"])
    situation = situation._replace(needs=("dropout",) if fields["dropout"] else ())
    assert (name_kernel(situation) == "varlen") == expected
    assert name_kernel(situation._replace(implementation="eager")) == "grouped"
    assert name_kernel(situation.also("bias")) == "grouped"


HUB = {
    "flash": ("kernels-community/flash-attn2", flash_attention_mask),
    "another flash": ("kernels-community/vllm-flash-attn3", flash_attention_mask),
    "of a revision": ("kernels-community/flash-attn2@v0.1", flash_attention_mask),
    "a function": ("someone/attention@main:attend", flash_attention_mask),
    "without a mask of its own": ("someone/flash:attend", None),
    "with masks": ("someone/flash-sdpa", sdpa_mask),
}
"""Names of kernels of the Hub, as transformers registers them, and what makes their masks."""


@pytest.fixture
def hub_kernel(request, monkeypatch):
    """Register a stand-in for a kernel of the Hub, which keeps what it is called with."""
    name, mask_function = HUB[request.param]
    calls = []

    def attend(module, query, key, value, mask, **options):
        calls.append((mask, options))
        return torch.zeros_like(query.transpose(1, 2)), None

    monkeypatch.setitem(AttentionInterface._global_mapping, name, attend)
    if mask_function is not None:
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, name, mask_function)
    # A kernel of this name would be looked up on the Hub.
    monkeypatch.setattr("transformers.modeling_utils.lazy_import_flash_attention", lambda *_, **__: None)
    return name, calls


@pytest.mark.parametrize("member", ["encoder", "decoder"])
@pytest.mark.parametrize("hub_kernel", [name for name in HUB if name != "with masks"], indirect=True)
def test_a_flash_kernel_of_the_hub_reads_bounds_under_any_name(hub_kernel, member, builder):
    name, calls = hub_kernel
    model = builder(member)
    model.set_attn_implementation(name)
    assert model.model.config._attn_implementation == name
    padded = inputs_of("padded")
    for inputs, is_training in ((inputs_of("packed"), False), (inputs_of("packed"), True), (padded, True)):
        calls.clear()
        without_cache = {"use_cache": False} if member == "decoder" else {}
        model.train(is_training)(**inputs, **without_cache)
        bounds = torch.tensor([0, 6, 10]) if inputs is padded else inputs["cu_seq_lens_q"]
        assert len(calls) == 2
        for mask, options in calls:
            assert mask is None
            assert options["cu_seq_lens_q"].tolist() == options["cu_seq_lens_k"].tolist() == bounds.tolist()
            assert options["max_length_q"] == int(bounds.diff().max())
    with pytest.raises(ValueError, match=f"'{name}' takes no mask of pairs"):
        model(padded["input_ids"], attention_mask=torch.ones(2, 6, 6))
    for inputs in (padded["input_ids"], torch.arange(6).repeat(2, 1)):
        with pytest.raises(
            ValueError, match=f"'{name}' takes no mask, which packed sequences of several rows"
        ):
            model(inputs, position_ids=torch.arange(3).repeat(2)[None])


@pytest.mark.parametrize("hub_kernel", ["with masks"], indirect=True)
def test_a_kernel_of_the_hub_that_takes_masks_gets_them(hub_kernel, builder):
    name, calls = hub_kernel
    model = builder("encoder")
    model.set_attn_implementation(name)
    model(**inputs_of("packed"))
    for mask, options in calls:
        assert mask[0, 0].sum(-1).tolist() == [5] * 5 + [7] * 7
        assert "cu_seq_lens_q" not in options


@pytest.mark.parametrize("hub_kernel", list(HUB), indirect=True)
def test_what_needs_a_mask_or_a_bias_refuses_flash_kernels_of_the_hub(hub_kernel, builder):
    name, _ = hub_kernel
    takes_masks = HUB["with masks"][0] == name
    for variant, words in (("t5", "does not support the bias"), ("strided", "takes no mask")):
        model = builder("encoder", variant)
        if takes_masks:
            model.set_attn_implementation(name)
            continue
        with pytest.raises(ValueError, match=f"'{name}' {words}"):
            model.set_attn_implementation(name)


def test_a_kernel_without_masks_reads_no_packed_sequences(builder, monkeypatch):
    monkeypatch.setitem(AttentionInterface._global_mapping, "bare", registered_attention)
    model = build(builder, "encoder", "bare", "eval")
    model(**inputs_of("plain"))
    with pytest.raises(ValueError, match="'bare' takes no mask, which packed sequences"):
        model(**inputs_of("packed"))
