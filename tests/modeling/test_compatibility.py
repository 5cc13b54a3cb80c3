"""Versions of transformers and torch: nothing private is needed, and nothing is swallowed."""

import ast
import importlib
import logging
import re
import sys
from configparser import ConfigParser
from pathlib import Path
from types import ModuleType

import pytest
import torch
import transformers
from torch import nn
from torch.testing import assert_close
from transformers import DynamicCache

import tercet
from tercet import modeling
from tercet.modeling import compatibility

MODELING = Path(modeling.__file__).parent
COMPATIBILITY = "compatibility.py"
DECODER = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
DECODER |= {"initializer_range": 0.5}  # so that texts differ
NEW = 9
GREEDY = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}

DESCRIPTIONS = {
    "_attn_implementation",
    "_can_compile_fullgraph",
    "_can_record_outputs",
    "_init_weights",
    "_is_stateful",
    "_keys_to_ignore_on_load_unexpected",
    "_no_split_modules",
    "_skip_keys_device_placement",
    "_supports_attention_backend",
    "_supports_context_parallel",
    "_supports_flash_attn",
    "_supports_flex_attn",
    "_supports_sdpa",
    "_tied_weights_keys",
    "_tp_plan",
}
"""Attributes by which any model describes itself to transformers."""


def names_of(tree: ast.AST) -> set[str]:
    """List the names that a module uses: attributes, imports, and what its classes define."""
    found = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    return found


def own_names(tree: ast.AST) -> set[str]:
    """List the names that a module defines itself."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


WITHOUT_A_PUBLIC_WAY = {
    "modeling/stock/models.py": {"_from_config"},
    "training/metrics/texts.py": {"_extract_corpus_statistics", "_compute_score_from_stats"},
}
"""Where an exported model is built in its type (transformers), and scores of texts are added up (sacrebleu).
An error tells when one of the names is gone: nothing is computed by another way."""


@pytest.mark.parametrize("folder", ["modeling", "data", "training"])
def test_private_names_stand_in_one_module(folder):
    found = {}
    for path in sorted((MODELING.parent / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        private = {name for name in names_of(tree) if re.match(r"_[a-zA-Z]", name)}
        private -= own_names(tree) | DESCRIPTIONS | {"_replace", "_exit"}
        private -= WITHOUT_A_PUBLIC_WAY.get(path.relative_to(MODELING.parent).as_posix(), set())
        if private and path != MODELING / COMPATIBILITY:
            found[path.name] = private
    assert not found


def fresh(monkeypatch) -> ModuleType:
    """Import the modules of the decoder anew, as a process does that starts now."""
    package = ModuleType("fresh_modeling")
    package.__path__ = [str(MODELING)]
    for name in [name for name in sys.modules if name.startswith("fresh_modeling")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fresh_modeling", package)
    return importlib.import_module("fresh_modeling.modeling_tercet_decoder")


class Gone:
    """What is not there."""

    def __getattr__(self, name):
        raise AttributeError(f"no {name}")

    def __call__(self, *_, **__):
        raise AttributeError("no such operator")


PRIVATE = {
    "transforms": (torch._C._functorch, "peek_interpreter_stack"),
    "gradients of a softmax": (torch.ops.aten, "_softmax_backward_data"),
    "flash kernels": (torch.ops.aten, "_flash_attention_forward"),
    "tensors without numbers": (torch._subclasses.fake_tensor, "FakeTensor"),
    "blocks": (torch.ops.mkldnn, "_reorder_linear_weight"),
    "products of blocks": (torch.ops.mkldnn, "_linear_pointwise"),
    "types of cached layers": (transformers.cache_utils, "DYNAMIC_LAYER_TYPE_MAPPING"),
}
"""Where each private name of the module stands."""


def by_hand(model, ids):
    """Write a text by the largest logits of whole forward passes."""
    for _ in range(NEW):
        ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return ids


@pytest.mark.parametrize("change", [Gone(), lambda *, other: other], ids=["gone", "another signature"])
@pytest.mark.parametrize("name", PRIVATE)
@torch.no_grad()
def test_without_a_private_name_texts_are_the_same(name, change, monkeypatch):
    place, attribute = PRIVATE[name]
    if attribute.isupper():  # a table, which nobody calls
        change = {}
    with monkeypatch.context() as patch:
        patch.setattr(place, attribute, change)
        module = fresh(monkeypatch)
    if place is torch.ops.mkldnn:  # tried when it is first used; torch itself uses the others
        monkeypatch.setattr(place, attribute, change)
    torch.manual_seed(0)
    model = module.TercetDecoderForCausalLM(module.TercetDecoderConfig(**DECODER)).eval()
    ids = torch.randint(3, 64, (2, 5))
    expected = by_hand(model, ids)
    assert len(expected.unique()) > 4
    assert torch.equal(model.generate(ids, **GREEDY), expected)
    assert torch.equal(model.generate(ids, num_beams=1, use_cache=False, **GREEDY), expected)


def test_without_the_operator_gradients_are_those_of_the_definition(monkeypatch):
    gradients = []
    for operator in (compatibility.softmax_operator, None):
        monkeypatch.setattr(compatibility, "softmax_operator", operator)
        torch.manual_seed(0)
        model = tercet.TercetDecoderForCausalLM(tercet.TercetDecoderConfig(**DECODER)).train()
        ids = torch.randint(3, 64, (1, 20), generator=torch.Generator().manual_seed(0))
        bounds = torch.tensor([0, 8, 20], dtype=torch.int32)
        model(ids, labels=ids, cu_seq_lens_q=bounds).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


MODELS = {
    name: kind
    for name in modeling.__all__
    if isinstance(kind := getattr(modeling, name), type)
    and issubclass(kind, modeling.NeuralPreTrainedModel)
    and getattr(kind, "config_class", None) is not None
    and not name.startswith("Neural")
    and not name.endswith("PreTrainedModel")
}


def small(kind):
    """Build a small model of a class."""
    with torch.device("meta"):
        return kind(kind.config_class())


@pytest.mark.parametrize("name", MODELS)
def test_no_model_swallows_a_word(name):
    model = small(MODELS[name])
    for word, answer in {
        "atention_mask": "did you mean attention_mask",
        "fantasy": "leave it out",
    }.items():
        with pytest.raises(TypeError, match=f"{name} does not know the argument '{word}': {answer}"):
            model(**{word: 1})


def test_what_transformers_itself_passes_is_known():
    model = tercet.TercetEncoderForMaskedLM(tercet.TercetEncoderConfig(**DECODER)).eval()
    ids = torch.randint(3, 64, (1, 5))
    passed = {"num_items_in_batch": 5, "output_router_logits": False, "use_cache": False}
    assert torch.equal(model(ids, **passed).logits, model(ids).logits)
    nothing = {
        "fantasy": None,
        "encoder_hidden_states": None,
        "rotation": None,
    }  # the last two: names of layers
    assert torch.equal(model(ids, **nothing).logits, model(ids).logits)


@pytest.fixture
def newer(monkeypatch):
    """Let the installed transformers be newer than the tested releases."""
    monkeypatch.setattr(compatibility, "NEWEST_TRANSFORMERS", (5, 16))
    monkeypatch.setattr(compatibility, "OLDEST_TRANSFORMERS", (5, 12))
    compatibility.logger.warning_once.cache_clear()
    yield
    compatibility.logger.warning_once.cache_clear()


@pytest.fixture
def lines(monkeypatch, caplog):
    """Collect what is logged."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(compatibility.logger, "propagate", True)
    with caplog.at_level("WARNING"):
        yield lambda: caplog.messages


@torch.no_grad()
def test_with_a_newer_transformers_a_line_is_said_once_and_generation_is_plain(newer, lines, monkeypatch):
    models = [tercet.TercetDecoderForCausalLM(tercet.TercetDecoderConfig(**DECODER)).eval() for _ in range(2)]
    [line] = lines()
    for part in ("5.12 to 5.16", transformers.__version__, "transformers>=5.12,<5.17"):
        assert part in line
    steps = []
    monkeypatch.setattr(type(models[0]), "decode_step", lambda *_, **__: steps.append(1))
    ids = torch.randint(3, 64, (2, 5))
    assert torch.equal(models[0].generate(ids, **GREEDY), by_hand(models[0], ids))
    assert not steps
    models[0](ids, fantasy=1)
    models[0](ids, fantasy=1)
    [line] = [line for line in lines() if "fantasy" in line]
    assert line.startswith("The model does not know the argument 'fantasy', which only attention kernels")


@torch.no_grad()
def test_a_hook_that_is_added_while_a_text_is_written_is_called():
    model = tercet.TercetDecoderForCausalLM(tercet.TercetDecoderConfig(**DECODER)).eval()
    calls = []

    def add_hook(ids, scores):
        if ids.shape[1] == 7:
            model.model.register_forward_hook(lambda *_: calls.append(1))
        return scores

    model.generate(torch.randint(3, 64, (2, 5)), logits_processor=[add_hook], **GREEDY)
    assert len(calls) == NEW - 3


@torch.no_grad()
def test_the_cache_has_either_name():
    torch.manual_seed(0)
    model = tercet.TercetDecoderForCausalLM(tercet.TercetDecoderConfig(**DECODER)).eval()
    ids = torch.randint(3, 64, (2, 5))
    expected = by_hand(model, ids)
    whole = model(ids, use_cache=False).logits
    for name in ("cache", "past_key_values"):
        cache = DynamicCache(config=model.config)
        outputs = model(ids[:, :3], **{name: cache})
        assert outputs[compatibility.CACHE] is cache
        assert_close(model(ids[:, 3:], **{name: cache}).logits, whole[:, 3:])
        cache = DynamicCache(config=model.config)
        assert torch.equal(model.generate(ids, **{name: cache}, **GREEDY), expected)
        assert cache.get_seq_length() == 5 + NEW - 1
    with pytest.raises(ValueError, match="the cache is given as cache and as past_key_values"):
        model(ids, cache=cache, past_key_values=cache)


def test_a_cache_is_not_filled_twice_by_gradient_checkpointing():
    model = tercet.TercetDecoderForCausalLM(tercet.TercetDecoderConfig(**DECODER)).train()
    model.gradient_checkpointing_enable()
    ids = torch.randint(3, 64, (2, 5))
    with pytest.raises(ValueError, match="a cache is given to TercetDecoderModel with gradient"):
        model(ids, cache=DynamicCache(config=model.config))


def test_tested_versions_are_those_that_can_be_installed():
    setup = ConfigParser()
    setup.read(Path(tercet.__file__).parents[1] / "setup.cfg", encoding="utf-8")
    if not setup.sections():
        pytest.skip("there is no setup.cfg beside an installed tercet")
    assert compatibility.tested_range() in setup["options"]["install_requires"].split()


def test_a_name_that_is_gone_is_told_of_once(lines):
    compatibility.logger.warning_once.cache_clear()
    for _ in range(2):
        assert compatibility.find_private("_C.no_such_name", callable, "layers compute otherwise") is None
    [line] = lines()
    assert line.startswith(f"torch._C.no_such_name of torch {torch.__version__} is not used (")
    assert line.endswith("layers compute otherwise")


def test_a_module_whose_hooks_cannot_be_seen_counts_as_hooked(monkeypatch):
    module = nn.Identity()
    assert not compatibility.has_hooks(module)
    monkeypatch.setattr(compatibility, "HOOKS", (*compatibility.HOOKS, "_hooks_of_the_next_release"))
    assert compatibility.has_hooks(module)
