"""Flex attention over packed sequences: the values and gradients of groups, by tiles that no host waits for.

It runs on GPUs only. Here torch computes the same by plain operations, once its refusal of gradients on a CPU
is taken away.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention
from torch.testing import assert_close

from tercet.modeling.attention import gpu_kernels, kernels
from tercet.modeling.attention.gpu_kernels import TILE, find_tiles, near_by_tiles
from tercet.modeling.attention.kernels import name_kernel
from tercet.modeling.attention.packing import PackedSequences, sequence_ids
from tercet.modeling.attention.patterns import PATTERNS
from tercet.training.devices import compiling

from ..fixed_sizes import META, watch
from .kernel_differences import disagreement

FIELDS = {"max_position_embeddings": 256, "attention_block_size": 4, "attention_random_blocks": 1}
STOCK = FIELDS | {"layer_types": ["stock_big_bird_attention", "full_attention"]}
CASES = {
    **{
        (member, variant): {}
        for member in ("encoder", "decoder")
        for variant in ("strided", "big_bird", "alibi", "t5", "sliding_t5")
    },
    ("encoder", "modern"): STOCK,
    ("encoder", "gated"): STOCK,
    ("decoder", "sliding_alibi"): {},
}
"""Members and variants whose pairs or scores flash kernels do not know; some have heads that share keys."""
LENGTHS = (
    (7, 3, 0, 9, 150, 1, 130, 0, 0),
    (100, 100, 100, 0, 0, 0, 0, 0, 0),
    (1, 2, 3, 150, 4, 5, 6, 129, 0),
)
"""Micro-batches of one size; the last sequences are empty, as where one was filled."""


@pytest.fixture
def flex(monkeypatch):
    """Let flex attention serve a CPU; gives the number of its calls."""
    calls = []

    def compute(*arguments, **options):
        calls.append(1)
        return gpu_kernels.tiled_attention(*arguments, **options)

    monkeypatch.setitem(kernels.KERNELS, "flex", compute)
    monkeypatch.setattr(kernels, "runs_flex", anywhere)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    return calls


def anywhere(situation) -> bool:
    """Say that the device runs a kernel."""
    return True


def nowhere(situation) -> bool:
    """Say that the device does not run a kernel."""
    return False


def inputs_of(member: str, lengths) -> dict:
    """Pack sequences of these lengths."""
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
    without_cache = {"use_cache": False} if member == "decoder" else {}
    ids = torch.arange(sum(lengths))[None] % 58 + 3
    return {"input_ids": ids, "cu_seq_lens_q": bounds, "max_length_q": 150} | without_cache


def learned(model, inputs):
    """Give logits, and the gradients of a sum of them."""
    model.zero_grad()
    logits = model(**inputs).logits
    (logits * torch.sin(torch.arange(logits.numel())).view_as(logits)).sum().backward()
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return logits.detach(), gradients


def assert_learns_the_same(found, expected):
    """Compare logits and gradients, which have the size of the largest of all."""
    assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)
    size = max(float(each.abs().max()) for each in expected[1].values())
    assert_close(found[1], expected[1], rtol=1e-4, atol=1e-5 * size)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize(("member", "variant"), CASES)
def test_patterns_and_biases_are_learned_as_in_groups(member, variant, builder, flex, monkeypatch):
    model = builder(member, variant, **{"max_position_embeddings": 256} | CASES[member, variant]).train()
    inputs = inputs_of(member, LENGTHS[0])
    found = learned(model, inputs)
    assert len(flex) == (2 if model.config.has_score_bias else 1)
    monkeypatch.setattr(kernels, "runs_flex", nowhere)
    assert_learns_the_same(found, learned(model, inputs))
    assert len(flex) <= 2


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_chosen_global_tokens_attend_by_tiles(builder, flex, monkeypatch):
    model = builder("encoder", "sliding", max_position_embeddings=256).train()
    inputs = inputs_of("encoder", LENGTHS[0])
    inputs["global_attention_mask"] = (torch.arange(300) % 40 == 39).long()[None]
    found = learned(model, inputs)
    assert len(flex) == 2
    monkeypatch.setattr(kernels, "runs_flex", nowhere)
    assert_learns_the_same(found, learned(model, inputs))


@pytest.mark.parametrize(
    ("member", "variant"), [("encoder", "big_bird"), pytest.param("decoder", "t5", marks=pytest.mark.slow)]
)
def test_layers_by_tiles_are_one_graph_for_all_micro_batches_of_a_size(
    member, variant, builder, flex, monkeypatch
):
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    monkeypatch.setitem(kernels.KERNELS, "flex", gpu_kernels.tiled_attention)
    model = builder(member, variant, max_position_embeddings=256).train()
    graphs = compiling.CompiledBlocks(model, has_fixed_sizes=True)
    graphs.graphs = {layer: graphs.graphs[layer] for layer in compiling.layers_of(model)}
    assert len(graphs.graphs) == 2
    for lengths in LENGTHS:
        inputs = inputs_of(member, lengths)
        monkeypatch.setattr(kernels, "runs_flex", nowhere)
        expected = learned(model, inputs)
        monkeypatch.setattr(kernels, "runs_flex", anywhere)
        with graphs.in_use():
            assert_learns_the_same(learned(model, inputs), expected)
    assert counters["stats"]["unique_graphs"] == (1 if variant == "t5" else 2)


@pytest.mark.slow
def test_layers_that_are_not_compiled_have_few_graphs_of_the_kernel(builder, flex, monkeypatch):
    """Whatever the sizes of micro-batches: for many sequences, few, and those of less than a tile."""
    torch._dynamo.reset()
    kernel = torch.compile(gpu_kernels.flex_attention, fullgraph=True, backend="aot_eager")
    monkeypatch.setattr(gpu_kernels, "compiled_kernel", lambda: kernel)
    model = builder("decoder", "t5", max_position_embeddings=256).train()
    numbers = []
    for lengths in (*LENGTHS[:2], (50, 30, 20), (10,) * 20, (3, 4, 5), (150, 2), (9,) * 15):
        inputs = inputs_of("decoder", lengths)
        with monkeypatch.context() as only_here:
            only_here.setattr(kernels, "runs_flex", nowhere)
            expected = learned(model, inputs)
        with monkeypatch.context() as only_here:
            only_here.setattr(gpu_kernels, "flex_attention", gpu_kernels.compiled_attention)
            counters.clear()
            assert_learns_the_same(learned(model, inputs), expected)
        numbers.append(counters["stats"]["unique_graphs"])
    assert sum(numbers) <= 4
    assert numbers[-2:] == [0, 0]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", PATTERNS)
def test_all_pairs_lie_in_the_tiles_and_no_host_waits(kind, is_causal, builder, monkeypatch):
    """Tiles without a pair are few."""
    if is_causal and PATTERNS[kind].is_bidirectional_only:
        pytest.skip("has no causal form")
    config = builder("encoder", "big_bird", sliding_window=20, attention_stride=30, **FIELDS).config
    pattern = PATTERNS[kind](config, is_causal=is_causal)
    lengths = torch.tensor([30, 0, 700, 5, 1, 400, 3, 0])
    bounds = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int()
    num_tokens = int(bounds[-1])
    chosen = torch.arange(num_tokens) == 600
    for global_tokens in (None, chosen):
        sequences = PackedSequences(bounds, bounds, 700, 700, global_tokens)
        far = replace(
            sequences,
            cu_seq_lens_q=bounds.to(META),
            global_tokens=None if global_tokens is None else global_tokens.to(META),
        )
        find_tiles(pattern, far, num_tokens)  # blocks of a pattern are copied to the device once
        with watch(monkeypatch):
            find_tiles(pattern, far, num_tokens)
        mask = find_tiles(pattern, sequences, num_tokens).mask
        assert mask.seq_lengths == (1152, 1152), "whole tiles of 1,139 tokens (pytorch/pytorch#153799)"
        ids = sequence_ids(bounds, num_tokens)[0]
        allowed = torch.zeros(num_tokens, num_tokens, dtype=torch.bool)
        for number, length in enumerate(lengths.tolist()):
            own = ids == number
            part = None if global_tokens is None else global_tokens[own]
            allowed[own[:, None] & own] = pattern.map_of(length, part).flatten()
        places = torch.arange(num_tokens)
        assert torch.equal(mask.mask_mod(torch.tensor(0), None, places[:, None], places), allowed)
        size = -(-num_tokens // TILE)
        padded = torch.nn.functional.pad(allowed, [0, size * TILE - num_tokens] * 2)
        needed = padded.view(size, TILE, size, TILE).any(3).any(1)
        computed = mask.to_dense()[0, 0].bool()
        assert not (needed & ~computed).any()
        assert computed.sum() <= 1.3 * needed.sum()


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_the_kernel_computes_the_definition_of_a_window(flex):
    assert disagreement(near_by_tiles, torch.device("cpu"), torch.float32) < 1e-5


HALF, FULL = torch.bfloat16, torch.float32
SITUATIONS = {
    ("modern", HALF, 0.0): ("varlen", "varlen"),
    ("modern", HALF, 0.1): ("varlen", "varlen"),
    ("modern", FULL, 0.0): ("grouped", "operator"),
    ("sliding", HALF, 0.0): ("varlen", "varlen"),
    ("big_bird", HALF, 0.0): ("flex", "flex"),
    ("big_bird", FULL, 0.0): ("flex", "flex"),
    ("big_bird", HALF, 0.1): ("grouped (attention_dropout=0 would have flex)", None),
    ("strided", HALF, 0.0): ("flex", "flex"),
    ("stock", HALF, 0.0): ("flex", "flex"),
    ("t5", HALF, 0.0): ("flex", "flex"),
    ("t5", HALF, 0.1): (
        "grouped (attention_dropout=0 would have flex)",
        "operator (attention_dropout=0 would have flex)",
    ),
    ("alibi", FULL, 0.0): ("flex", "flex"),
    ("sliding_t5", HALF, 0.0): ("flex", "flex"),
    ("additive", HALF, 0.0): ("grouped", None),
    ("narrow", HALF, 0.0): ("varlen", "varlen"),
    ("narrow t5", HALF, 0.0): ("grouped", "operator"),
    ("older GPU", HALF, 0.0): ("grouped", "operator"),
    ("grouped", HALF, 0.0): ("varlen", "varlen"),
    ("sliding_alibi", HALF, 0.0): ("flex", "flex"),
    ("decoder", HALF, 0.1): ("varlen", "varlen"),
    ("decoder", FULL, 0.0): ("grouped", "operator"),
    ("decoder with a bias", HALF, 0.0): ("flex", "flex"),
    ("decoder with a bias", HALF, 0.1): (
        "grouped (attention_dropout=0 would have flex)",
        "operator (attention_dropout=0 would have flex)",
    ),
    ("seq2seq", HALF, 0.0): ("varlen", "varlen"),
    ("seq2seq with a bias", FULL, 0.0): ("flex", "flex"),
}
"""What the first layer has on a GPU, as it is written and compiled, in which dtype and with which dropout.

Of a seq2seq it is the decoder's; heads of `grouped` and `sliding_alibi` share keys.
"""
BUILT = {
    "stock": ("modern", STOCK),
    "additive": ("modern", {"attention_score": "additive"}),
    "narrow": ("modern", {"head_dim": 8}),
    "narrow t5": ("t5", {"head_dim": 8}),
    "older GPU": ("modern", {}),
    "decoder": ("modern", {}, "decoder"),
    "decoder with a bias": ("t5", {}, "decoder"),
    "seq2seq": ("modern", {}, "seq2seq"),
    "seq2seq with a bias": ("t5", {}, "seq2seq"),
}


@pytest.mark.parametrize(("case", "dtype", "dropout"), SITUATIONS)
def test_the_table_chooses_for_a_gpu(case, dtype, dropout, builder, monkeypatch):
    """By pattern, bias and score, dropout, type, and whether a compiler writes the layer down."""
    monkeypatch.setattr(gpu_kernels, "runs", lambda *_: True)
    capability = {"older GPU": (7, 5)}.get(case, (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    variant, fields, *member = BUILT.get(case, (case, {}))
    options = {"head_dim": 16, "attention_dropout": dropout, "max_position_embeddings": 256} | fields
    stack = builder(*member or ["encoder"], variant, **options).model
    block = getattr(stack, "decoder", stack).layers[0]
    with FakeTensorMode():
        projection = block.self_attention.q_proj
        projection.weight = nn.Parameter(torch.empty(64, 32, device="cuda", dtype=dtype))
        written = block.attention_name
        compiled = None
        if block.can_be_compiled:
            monkeypatch.setattr(block, "is_compiled", True)
            compiled = block.attention_name
    assert (written, compiled) == SITUATIONS[case, dtype, dropout]


BESIDE = {
    ("modern", HALF, 0.0): [("varlen", "varlen"), ("varlen", "varlen")],
    ("modern", FULL, 0.0): [("grouped", "grouped"), ("operator", "operator")],
    ("grouped", HALF, 0.1): [("varlen", "varlen"), ("varlen", "varlen")],
    ("t5", HALF, 0.0): [("flex", "varlen"), ("flex", "varlen")],
    ("t5", HALF, 0.1): [("grouped", "varlen"), ("operator", "varlen")],
    ("sliding_alibi", FULL, 0.0): [("flex", "grouped"), ("flex", "operator")],
}
"""What a decoder's layer chooses for itself and for an encoder, as it is written and in a graph."""


@pytest.mark.parametrize(("variant", "dtype", "dropout"), BESIDE)
def test_attention_to_an_encoder_has_a_kernel_of_its_own(variant, dtype, dropout, builder, monkeypatch):
    """It has no bias, and sees all; the table is that of a GPU, though states are on a CPU."""
    chosen = []

    def choose(situation):
        chosen.append(name_kernel(situation))
        return lambda module, query, *_, **__: (query.transpose(1, 2), None)

    monkeypatch.setattr(kernels, "runs_flex", anywhere)
    monkeypatch.setattr(kernels, "runs_varlen", lambda situation: situation.dtype == HALF)
    monkeypatch.setattr(kernels, "choose_kernel", choose)
    options = {"head_dim": 16, "attention_dropout": dropout, "max_position_embeddings": 256}
    model = builder("seq2seq", variant, **options).to(dtype).train()
    inputs = inputs_of("seq2seq", LENGTHS[0])
    others = {"decoder_input_ids": inputs["input_ids"], "cu_seq_lens_k": inputs["cu_seq_lens_q"]}
    found = []
    for is_traced in (False, True):
        monkeypatch.setattr(kernels, "is_tracing", lambda is_traced=is_traced: is_traced)
        model.model(**inputs, **others, max_length_k=150, use_cache=False)
        found.append(tuple(chosen[-2:]))
    assert found == BESIDE[variant, dtype, dropout]
