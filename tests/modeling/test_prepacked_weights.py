"""Products by prepacked weights are those of the layers, and of the weights of the day.

Weights that have changed are prepacked again, however they have changed.
"""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers.utils import logging

from tercet.modeling import compatibility
from tercet.modeling.generation import prepacked_weights as module
from tercet.modeling.generation.prepacked_weights import checksum, prepacked_weights
from tercet.modeling.layers.position_wise import build_activation, is_stand_in, project

CLOSE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
}


NEEDS_BFLOAT16 = pytest.mark.skipif(
    not module.multiplies_blocks(torch.bfloat16), reason="this CPU multiplies no blocks of bfloat16"
)


DTYPES = [pytest.param(torch.float32), pytest.param(torch.bfloat16, marks=NEEDS_BFLOAT16)]


class Layers(nn.ModuleList):
    """Layers that say that they may be prepacked."""

    prepacks = True


class Activated(nn.Module):
    """A layer, and an activation that alone sees its results."""

    prepacks = True
    activated = ("layer", "act_fn")

    def __init__(self, name: str):
        super().__init__()
        self.layer, self.act_fn = nn.Linear(24, 16), build_activation(name)

    def forward(self, x):
        return self.act_fn(self.layer(x))


@pytest.fixture
def model():
    """Give three layers that read the same input."""
    torch.manual_seed(0)
    return Layers([nn.Linear(24, width) for width in (16, 8, 40)]).eval()


@pytest.fixture
def x():
    return torch.randn(2, 3, 24, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def counted(monkeypatch):
    """Count the products by blocks, and how often blocks are cut."""
    counts = {"multiply_blocks": 0, "cut_into_blocks": 0}

    def counting(name):
        function = getattr(module, name)

        def call(*arguments):
            counts[name] += 1
            return function(*arguments)

        monkeypatch.setattr(module, name, call)

    assert module.multiplies_blocks(torch.float32), "these tests need a CPU that multiplies blocks"
    for dtype in filter(module.multiplies_blocks, (torch.float32, torch.bfloat16)):
        for kind in module.FUSED:  # tried once in a process
            assert module.applies_in_products(kind, dtype) or dtype == torch.bfloat16
    for name in counts:
        counting(name)
    return counts


@torch.no_grad()
def products(model, x):
    """Apply the layers of a model, together and one by one."""
    with prepacked_weights(model):
        return [*project(x, *model), *(layer(x) for layer in model)]


def assert_products_are_those_of_the_layers(model, x):
    assert_close(products(model, x), [layer(x) for layer in model] * 2, **CLOSE[x.dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 8, 100])
def test_products_are_those_of_the_layers(counted, dtype, bias, rows):
    torch.manual_seed(0)
    model = Layers([nn.Linear(24, width, bias, dtype=dtype) for width in (16, 8, 40)]).eval()
    assert_products_are_those_of_the_layers(model, torch.randn(rows, 1, 24, dtype=dtype))
    assert counted["multiply_blocks"] == 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["relu", "relu2", "silu", "gelu", "gelu_new", "tanh"])
@torch.no_grad()
def test_results_are_those_of_layer_and_activation(counted, x, dtype, name):
    pair, x = Activated(name).to(dtype).eval(), x.to(dtype)
    with prepacked_weights(pair):
        found = pair(x)
    assert_close(found, pair.act_fn(pair.layer(x)), **CLOSE[dtype])
    assert counted["multiply_blocks"] == 1


@pytest.mark.parametrize("name", ["relu", "silu", "gelu", "gelu_new"])
@torch.no_grad()
def test_the_product_applies_the_activation(model, x, name):
    pair = Activated(name).eval()
    with prepacked_weights(pair):
        assert torch.equal(pair.layer(x), pair(x))
        with torch.enable_grad():
            assert_close(pair(x), pair.act_fn(pair.layer(x)))
            assert not torch.equal(pair.layer(x), pair(x))


@torch.no_grad()
def test_who_calls_the_layer_elsewhere_finds_its_own_result(x):
    class Other(Activated):
        def forward(self, x):
            return self.layer(x)

    other = Other("gelu").eval()
    with prepacked_weights(other):
        found = other(x)
    assert_close(found, other.layer(x))


def test_afterwards_modules_are_as_before(model):
    pair = Layers([Activated("gelu"), *model])
    before = [dict(vars(each)) for each in pair.modules()]
    with prepacked_weights(pair), prepacked_weights(pair[0]):
        assert all(is_stand_in(each.forward) for each in pair[0].children())
    assert [vars(each) for each in pair.modules()] == before


@torch.no_grad()
def test_what_is_copied_meanwhile_can_be_pickled_and_read(x):
    """With another thread that generates, or from within: the copy is a plain model in the end."""
    model = Activated("gelu").eval()
    with torch.no_grad(), prepacked_weights(model):
        expected = model(x)
        read, copied = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
    for each in (read, copied, pickle.loads(pickle.dumps(copied))):
        with torch.no_grad():
            assert_close(each(x), expected)
            with prepacked_weights(each):
                assert_close(each(x), expected)
        assert not any("forward" in vars(module) for module in each.modules())


def test_an_activation_that_somebody_watches_is_called(model, x):
    pair, seen = Activated("gelu").eval(), []
    pair.act_fn.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    with prepacked_weights(pair):
        found = pair(x)
    assert seen[0][1] is found
    assert_close(seen[0][0], pair.layer(x))


def test_outside_nothing_is_cut(counted, model, x):
    project(x, *model)
    assert not any(counted.values())


def test_gradients_flow_even_inside(counted, model, x):
    with prepacked_weights(model):
        model[0](x).sum().backward()
    assert model[0].weight.grad is not None
    assert not any(counted.values())


def test_autocast_chooses_its_own_type(counted, model, x):
    with torch.no_grad(), prepacked_weights(model), torch.autocast("cpu", torch.bfloat16):
        assert model[0](x).dtype == torch.bfloat16
    assert not any(counted.values())


def test_blocks_are_cut_once(counted, model, x):
    for _ in range(3):
        products(model, x)
    assert counted == {"multiply_blocks": 12, "cut_into_blocks": 4}


def test_a_product_is_whole_although_another_thread_drops_it(model, x):
    """Else the product and the activation behind it may disagree who applies the latter."""

    class Dropped(dict):
        def __setitem__(self, layers, product):
            weights.products = Dropped()

    weights = module.PrepackedWeights()
    weights.products = Dropped()
    product = weights.product(model[0])
    assert product is not None
    assert_close(product(x)[0], model[0](x), **CLOSE[x.dtype])


def hook(layer):
    layer.register_forward_hook(lambda module, arguments, result: result + 1)


def replace_forward(layer):
    layer.forward = lambda x: torch.ones(*x.shape[:-1], 8)


def parametrize(layer):
    nn.utils.parametrizations.weight_norm(layer)


def subclass(layer):
    layer.__class__ = type(
        "Doubled", (nn.Linear,), {"forward": lambda self, x: 2 * nn.Linear.forward(self, x)}
    )


@pytest.mark.parametrize("alter", [hook, replace_forward, parametrize, subclass])
def test_a_layer_that_does_more_is_called(counted, model, x, alter):
    products(model, x)
    alter(model[1])
    counted.update(multiply_blocks=0)
    assert_products_are_those_of_the_layers(model, x)
    # The two beside it, once each as one of three and once alone.
    assert counted["multiply_blocks"] == 4


def blocks_after_generating(model) -> list[weakref.ref]:
    """Point at the products of a model that has generated."""
    model.generate(torch.ones(1, 3, dtype=torch.long), max_new_tokens=2)
    return [weakref.ref(product) for product in module._kept[model].products.values()]


def test_training_frees_the_blocks(builder):
    model = builder("decoder")
    blocks = blocks_after_generating(model)
    # In each layer: queries, keys and values; output; gate and up; down.
    assert len(blocks) == 2 * 4 + 1
    assert all(block() is not None for block in blocks)
    model.train()
    assert all(block() is None for block in blocks)


def test_the_blocks_end_with_the_model(builder):
    model = builder("decoder")
    blocks = blocks_after_generating(model)
    del model
    gc.collect()
    assert all(block() is None for block in blocks)


def test_a_model_in_training_keeps_none(model, x):
    products(model.train(), x)
    assert model not in module._kept


def test_a_copy_of_a_model_has_blocks_of_its_own(model, x):
    products(model, x)
    other = copy.deepcopy(model)
    other[1].weight.data[3, 5] += 1
    assert_products_are_those_of_the_layers(other, x)
    assert_products_are_those_of_the_layers(model, x)


@pytest.fixture
def untried():
    """Forget what has been tried and said, before and after."""
    module.multiplies_blocks.cache_clear()
    compatibility.logger.warning_once.cache_clear()
    yield
    module.multiplies_blocks.cache_clear()


@pytest.mark.parametrize("failure", [RuntimeError("no such instruction"), AttributeError("no such operator")])
def test_without_the_operators_layers_are_called_and_the_log_says_so_once(
    untried, monkeypatch, caplog, model, x, failure
):
    def fail(*_):
        raise failure

    monkeypatch.setattr(compatibility, "cut_into_blocks", fail)
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    monkeypatch.setattr(compatibility.logger, "propagate", True)
    with caplog.at_level("WARNING"):
        assert torch.equal(products(model, x)[1], model[1](x))
        products(model, x)
    assert [record for record in caplog.messages if str(failure) in record] == caplog.messages
    assert len(caplog.messages) == 1


def test_wrong_products_are_not_used(untried, monkeypatch, model, x):
    monkeypatch.setattr(compatibility, "multiply_blocks", lambda x, blocks, bias: x * 0)
    assert_products_are_those_of_the_layers(model, x)


@torch.no_grad()
def test_an_activation_that_a_product_applies_otherwise_is_called(monkeypatch, x):
    pair, multiply = Activated("gelu").eval(), module.multiply_blocks
    monkeypatch.setattr(module, "multiply_blocks", lambda x, blocks, bias, *_: multiply(x, blocks, bias))
    module.applies_in_products.cache_clear()
    with prepacked_weights(pair):
        found = pair(x)
    module.applies_in_products.cache_clear()
    assert_close(found, pair.act_fn(pair.layer(x)), **CLOSE[torch.float32])


def test_trying_draws_no_random_number(untried):
    state = torch.get_rng_state()
    module.multiplies_blocks(torch.float32)
    assert torch.equal(torch.get_rng_state(), state)


def add_in_place(layer):
    layer.weight.data[3, 5] += 1


def step(layer):
    layer.weight.grad = torch.ones_like(layer.weight)
    torch.optim.SGD([layer.weight], 1e-3).step()


def exchange_rows(layer):
    layer.weight.data = layer.weight.data.flip(0)


def replace(layer):
    layer.weight = nn.Parameter(layer.weight.detach() * 2)


def shift(layer):
    layer.bias.data += 1


def exchange_columns_unseen(layer):
    layer.weight.data = layer.weight.data[:, torch.arange(layer.weight.shape[1]).roll(4)]


def exchange_columns_in_place_unseen(layer):
    layer.weight.data.copy_(layer.weight.data.roll(4, dims=-1))


def exchange_biases(layer):
    layer.bias.data = layer.bias.data.flip(0)


@torch.no_grad()
def exchange_columns(layer):
    layer.weight.copy_(layer.weight.roll(8, dims=1))


@torch.no_grad()
def flip_two_signs(layer):
    layer.weight[:, [1, 3]] *= -1


def shrink(layer):
    layer.weight = nn.Parameter(layer.weight[:7].detach())
    layer.bias = nn.Parameter(layer.bias[:7].detach())


@pytest.mark.parametrize(
    "change",
    [
        add_in_place,
        step,
        exchange_rows,
        exchange_columns,
        exchange_columns_unseen,
        exchange_columns_in_place_unseen,
        exchange_biases,
        flip_two_signs,
        replace,
        shift,
        shrink,
    ],
)
def test_changed_weights_are_cut_again(change):
    torch.manual_seed(0)
    model = Layers([nn.Linear(24, width) for width in (16, 8, 40)]).eval()
    x = torch.randn(2, 3, 24)
    products(model, x)
    change(model[1])
    assert_products_are_those_of_the_layers(model, x)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checksums_see_every_element_of_odd_rows(width, dtype):
    weight = torch.ones(2, width, dtype=dtype)
    before = checksum(weight)
    for column in range(width):
        changed = weight.clone()
        changed[1, column] = 1.5
        assert not torch.equal(checksum(changed), before)
