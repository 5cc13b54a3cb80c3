"""Several linear layers as one product, where they are plain.

Feed-forward networks against their formulas, in outputs and gradients.

Norms keep the type of the weights under autocast, and the residual stream does on a CPU. On a GPU training
rounds it to bfloat16, as it does products; what is returned keeps its type.

Dropout drawn from sixteen bits: what it keeps, what it scales, and whose seed it follows.
"""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from tercet import TercetEncoderConfig, TercetEncoderForMaskedLM
from tercet.modeling import (
    TercetDecoderConfig,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
    stack,
)
from tercet.modeling.layers.block import BLOCKS, Block
from tercet.modeling.layers.position_wise import (
    FEED_FORWARD,
    LEVELS,
    Dropout,
    HeadRMSNorm,
    RMSNorm,
    build_activation,
    draw_kept,
    drop,
    is_plain,
    masked,
    project,
)


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def layers(request):
    torch.manual_seed(0)
    return [nn.Linear(6, width, bias=request.param).double() for width in (4, 2, 3)]


def test_one_product_equals_several(layers):
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    parameters = [x, *(parameter for layer in layers for parameter in layer.parameters())]
    results = []
    for training in (True, False):
        outputs = project(x, *(layer.train(training) for layer in layers))
        loss = torch.cat([output.sin() for output in outputs], dim=-1).sum()
        results.append((outputs, torch.autograd.grad(loss, parameters)))
    assert_close(results[0], results[1])


def test_layers_of_which_one_has_a_bias_keep_it():
    layers = [nn.Linear(6, 4, bias=False), nn.Linear(6, 4), nn.Linear(6, 4, bias=False)]
    x = torch.randn(5, 6)
    assert_close(project(x, *layers), tuple(layer(x) for layer in layers))


def test_a_layer_that_is_more_than_plain_is_called(layers):
    seen = []
    layers[1].register_forward_hook(lambda layer, inputs, output: seen.append(output))
    _, second, _ = project(torch.randn(5, 6, dtype=torch.float64), *layers)
    assert second is seen[0]

    class Doubled(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    class Quantized(Tensor):
        pass

    quantized = nn.Linear(6, 6)
    quantized.weight = nn.Parameter(quantized.weight.data.as_subclass(Quantized))
    moved = nn.Linear(6, 6)
    moved.forward = lambda input: input
    assert not is_plain(Doubled(6, 6))
    assert not is_plain(moved)
    assert not is_plain(quantized)
    assert is_plain(nn.Linear(6, 6))


C, F = 12, 20


FORMULAS = {
    "relu": lambda x: torch.where(x > 0, x, 0),
    "relu2": lambda x: torch.where(x > 0, x * x, 0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_pytorch_tanh": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
}
"""Activations by transformers' names. Gated, `gelu` is GEGLU and `silu` is SwiGLU (Shazeer, 2020)."""


def defined(network, kind: str, activation, x):
    """W_down act(W_up x), or W_down (act(W_gate x) * W_up x), with biases."""
    weights = dict(network.named_parameters())

    def affine(name, state):
        return state @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    inner = affine("up_proj", x)
    inner = activation(inner) if kind == "plain" else activation(affine("gate_proj", x)) * inner
    return affine("down_proj", inner)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", FEED_FORWARD)
@pytest.mark.parametrize("name", FORMULAS)
def test_networks_equal_their_formulas(name, kind, training):
    torch.manual_seed(0)
    config = TercetDecoderConfig(
        hidden_size=C, intermediate_size=F, num_attention_heads=2, mlp_bias=True, hidden_act=name
    )
    network = FEED_FORWARD[kind](config).double().train(training)
    x = torch.randn(2, 5, C, dtype=torch.float64, requires_grad=True)
    found, expected = network(x), defined(network, kind, FORMULAS[name], x)
    assert_close(found, expected)
    leaves = [*network.parameters(), x]
    assert_close(*(torch.autograd.grad(each.square().sum(), leaves) for each in (found, expected)))


def small_encoder(**fields):
    torch.manual_seed(0)
    return TercetEncoderForMaskedLM(
        TercetEncoderConfig(
            **{"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2} | fields
        )
    )  # fmt: skip


def types_of_the_stream(model):
    types = []
    for block in model.modules():
        if isinstance(block, Block):
            block.register_forward_hook(lambda _, given, found: types.extend((given[0].dtype, found.dtype)))
    return types


@pytest.mark.parametrize("norm_type", ["rms_norm", "layer_norm"])
def test_the_stream_of_projected_embeddings_has_the_type_of_the_weights(norm_type):
    model = small_encoder(embedding_size=16, head_transform=True, norm_type=norm_type)
    types = types_of_the_stream(model)
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.tensor([[5, 6, 7]]))
    assert types == [torch.float32] * 4


@pytest.mark.parametrize("norm_placement", BLOCKS)
@pytest.mark.parametrize(
    ("precision", "weights", "mode", "arguments", "expected"),
    [
        (torch.bfloat16, torch.float32, "train", {}, torch.bfloat16),
        (torch.bfloat16, torch.float32, "train", {"output_positions": torch.tensor([1])}, torch.bfloat16),
        (torch.bfloat16, torch.float32, "train", {"output_hidden_states": True}, torch.float32),
        (torch.bfloat16, torch.float64, "train", {}, torch.float64),
        (torch.bfloat16, torch.float32, "eval", {}, torch.float32),
        (torch.float16, torch.float32, "train", {}, torch.float32),
        (None, torch.float32, "train", {}, torch.float32),
    ],
)
def test_on_a_gpu_training_rounds_the_stream_where_it_rounds_products(
    monkeypatch, norm_placement, precision, weights, mode, arguments, expected
):
    model = getattr(small_encoder(norm_placement=norm_placement).to(weights), mode)()
    types, noted = types_of_the_stream(model), {}
    monkeypatch.setattr(Tensor, "is_cpu", False)
    with torch.autocast("cpu", precision, enabled=precision is not None):
        found = model.model(torch.tensor([[5, 6, 7]]), layer_states=noted, **arguments)
    assert types == [expected] * 4
    states = [found.last_hidden_state, *noted[model.model], *(found.hidden_states or ())]
    assert {each.dtype for each in states} == {weights}


def test_on_a_gpu_training_rounds_the_streams_of_encoder_and_decoder(monkeypatch):
    config = TercetSeq2SeqConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
    model = TercetSeq2SeqForConditionalGeneration(config).train()
    types, ids = types_of_the_stream(model), torch.tensor([[5, 6, 7]])
    monkeypatch.setattr(Tensor, "is_cpu", False)
    with torch.autocast("cpu", torch.bfloat16):
        model(input_ids=ids, labels=ids).loss.backward()
    assert types == [torch.bfloat16] * 8
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)


@pytest.mark.parametrize(("norm_placement", "limit"), [("pre", 0.01), ("parallel", 0.01), ("post", 0.02)])
def test_twelve_layers_of_a_rounded_stream_change_the_gradient_by_a_hundredth(
    monkeypatch, norm_placement, limit
):
    model = small_encoder(norm_placement=norm_placement, num_hidden_layers=12, dropout=0.0).train()
    ids = torch.randint(5, 50, (4, 16))
    monkeypatch.setattr(Tensor, "is_cpu", False)

    def gradient(dtype):
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            loss = model(ids, labels=ids).loss
        model.zero_grad()
        loss.backward()
        return torch.cat([weight.grad.flatten() for weight in model.parameters()])

    exact, rounded = gradient(None), gradient(torch.bfloat16)
    monkeypatch.setattr(stack, "dtype_of_stream", lambda x: x.dtype)
    products_rounded = gradient(torch.bfloat16)
    error, known = ((x - exact).norm() / exact.norm() for x in (rounded, products_rounded))
    assert 0 < known < error < limit


def test_a_norm_computes_in_the_type_of_its_weights():
    x = torch.randn(3, 8).bfloat16()
    norm, head_norm = RMSNorm(8, eps=1e-6), HeadRMSNorm(8, eps=1e-6)
    expected = torch.nn.functional.rms_norm(x.float(), [8], eps=1e-6)
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=0)
    torch.testing.assert_close(head_norm(x), expected.bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_elements_are_dropped_at_the_given_rate_and_the_others_scaled(dtype, probability):
    torch.manual_seed(0)
    x = torch.ones(1000, 101, dtype=dtype)  # not a multiple of the four that a draw gives
    y = drop(x, probability)
    assert y.dtype == dtype
    deviation = (probability * (1 - probability) / x.numel()) ** 0.5
    assert abs((y == 0).double().mean() - probability) < 3 * deviation
    assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - probability)), rtol=1e-4, atol=0)
    rates = (y == 0).double().mean(dim=0)  # no column is special
    assert (rates - probability).abs().max() < 5 * (probability * (1 - probability) / 1000) ** 0.5


def test_the_factor_keeps_the_expectation():
    for probability in (1e-6, 0.1, 1 / 3, 0.999_999):
        _, factor = draw_kept(torch.ones(4), probability)
        num_kept = LEVELS / factor
        assert num_kept == pytest.approx(round(num_kept))
        assert 1 <= round(num_kept) <= LEVELS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_kept_is_drawn_on_the_device_of_what_is_dropped(dtype):
    weights = torch.empty(3, 5, dtype=dtype, device="meta")  # as on a GPU, where the CPU's bits would not do
    kept, _ = draw_kept(weights, 0.1)
    assert kept.device == weights.device
    assert masked(weights, kept).shape == weights.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_gradient_is_that_of_what_was_kept(dtype):
    x = torch.randn(33, 64, dtype=dtype).mT.requires_grad_()  # in no order of memory that a mask might expect
    y = drop(x, 0.3)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert_close(gradient * x, y)


def test_all_may_be_dropped():
    x = torch.randn(2**17, requires_grad=True)
    y = drop(x, 1.0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert not y.any()
    assert not gradient.any()


def test_torchs_seed_decides():
    x = torch.ones(1000)
    torch.manual_seed(1)
    first, second = drop(x, 0.5), drop(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(drop(x, 0.5), first)
    assert not torch.equal(first, second)


def test_recomputed_activations_drop_the_same():
    layer, x = Dropout(0.5), torch.randn(1000, requires_grad=True)
    y = checkpoint(lambda x: layer(x).square(), x, use_reentrant=False)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient == 0, y == 0)


def test_evaluation_drops_nothing():
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_compiled_layers_that_learn_have_the_gelu_of_others(dtype):
    """In values and gradients."""
    activate = build_activation("gelu_new")
    x = torch.linspace(-30, 30, 601, dtype=dtype).requires_grad_()
    compiled = torch.compile(lambda x: activate(x), fullgraph=True, backend="aot_eager")
    found, expected = compiled(x), activate(x)
    assert_close(found, expected)
    assert_close(*(torch.autograd.grad(y.sum(), x)[0] for y in (found, expected)))
