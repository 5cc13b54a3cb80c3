"""What differs between versions of transformers and torch, and what of libraries is used that is not public.

No other module of models, data and training uses a private name of a library. What models compute with is
looked up and tried once, when the module is imported: where it is gone, or answers otherwise, public code
computes the same more slowly, and one line says so. What data loading and training use comes last: no model's
folder contains it. The attributes by which transformers' models describe themselves (`_no_split_modules`,
`_tied_weights_keys`, `_attn_implementation`, ...) are what its own guide for new models asks for.

From 5.24 on transformers calls the cache `cache` in calls, outputs and masks, as this code does, and models
fill the pages of continuous batching themselves. Before, the cache was `past_key_values`, and kernels filled
the pages.
"""

import inspect
import multiprocessing
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import fields
from difflib import get_close_matches
from functools import cache as remembered
from functools import wraps
from multiprocessing.queues import Queue
from operator import attrgetter
from typing import Any, cast

import torch
import transformers
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import cache_utils
from transformers.cache_utils import DynamicLayer, StaticLayer
from transformers.generation.continuous_batching import PagedAttentionCache
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils import logging
from transformers.utils.generic import TransformersKwargs

logger = logging.get_logger(__name__)

OLDEST_TRANSFORMERS, NEWEST_TRANSFORMERS = (5, 17), (5, 24)
"""The minor releases between which every release has passed the tests of this code."""


def tested_range() -> str:
    """Return these releases as pip reads them, such as "transformers>=5.17,<5.25"."""
    (oldest_major, oldest), (major, newest) = OLDEST_TRANSFORMERS, NEWEST_TRANSFORMERS
    return f"transformers>={oldest_major}.{oldest},<{major}.{newest + 1}"


def minor_release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def is_newer_than_tested() -> bool:
    """Return whether transformers may pass, or expect, what this code does not know."""
    return minor_release(transformers.__version__) > NEWEST_TRANSFORMERS


def is_tested() -> bool:
    return OLDEST_TRANSFORMERS <= minor_release(transformers.__version__) <= NEWEST_TRANSFORMERS


def warn_if_untested() -> None:
    """Say once in a process that this code was not tested with the installed transformers."""
    if is_tested():
        return
    oldest, newest = (".".join(map(str, release)) for release in (OLDEST_TRANSFORMERS, NEWEST_TRANSFORMERS))
    logger.warning_once(
        f"The code of this model was tested with transformers {oldest} to {newest}, and "
        f"{transformers.__version__} is installed: generation takes transformers' plain path. If results "
        f"differ, install '{tested_range()}', or save the model again with a newer tercet."
    )


def keep_registered_in(table: type[dict[Any, Any]], auto_class: Any) -> bool:
    """Let a dictionary of ours hold the models that are registered with an Auto class; false: it cannot."""
    models = getattr(auto_class, "_model_mapping", None)
    if not (is_tested() and isinstance(getattr(models, "_extra_content", None), dict)):
        return False
    cast(Any, models)._extra_content = table(cast(Any, models)._extra_content)
    return True


CACHE = "cache" if "cache" in {field.name for field in fields(BaseModelOutputWithPast)} else "past_key_values"
"""What transformers calls the cache."""

MODELS_FILL_PAGES = CACHE == "cache"
"""Whether attention layers fill the pages of continuous batching, or kernels do."""

OWN_KEYWORDS = (
    "global_attention_mask",
    "layer_states",
    "output_positions",
    "return_dict",
    "use_cache",
)
"""What our models read, or refuse in words of their own, beside the names in their signatures."""

KERNEL_KEYWORDS = ("deterministic", "kernel", "s_aux", "softcap", "target_dtype")
"""What attention kernels read besides."""

GENERATION_KEYWORDS = ("assistant_model", "assistant_tokenizer", "tokenizer")
"""What transformers' `generate` passes on to the model, which does not need it."""

HEAD_KEYWORDS = ("labels", "logits_to_keep")
"""What is passed on to the stack inside, too: by `generate` to encoders, by TRL's trainers to decoders."""

KEYWORDS = frozenset((*TransformersKwargs.__annotations__, *OWN_KEYWORDS, *KERNEL_KEYWORDS))
"""What may be given to any model beyond the names in its signature."""


def cache_parameter(model: nn.Module) -> str | None:
    """Return the name by which a model takes a cache, be it ours or another; `None`: it takes none."""
    parameters = inspect.signature(type(model).forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in parameters), None)


def by_name(cache: Any) -> dict[str, Any]:
    return {CACHE: cache}


def fill_pages(
    pages: PagedAttentionCache, key: Tensor, value: Tensor, layer_idx: int, arguments: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Add keys and values (1, G, N, D) to pages of continuous batching, and return what is attended to.

    The kernel's `arguments` are changed: they tell it what the pages hold, or bring the pages to a kernel
    that fills them itself.
    """
    if MODELS_FILL_PAGES:
        return cast(Any, pages).update(key, value, layer_idx, kwargs=arguments)
    arguments["cache"] = pages
    return key, value


def register_layer_types(kinds: Iterable[str]) -> None:
    """Let transformers' caches know types of layers: new ones keep all keys, as those of full attention."""
    tables = "DYNAMIC_LAYER_TYPE_MAPPING", "STATIC_LAYER_TYPE_MAPPING"
    for name, layer in zip(tables, (DynamicLayer, StaticLayer), strict=True):
        table = getattr(cache_utils, name, {})
        for kind in kinds:
            table.setdefault(kind, layer)


def known_arguments(
    *more: str, drops: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a model's `forward` refuse keywords that it does not know, and take the cache by either name.

    Known are the names in its signature, in that of the model inside (`self.model`), `more`, and `KEYWORDS`.
    What `drops` lists, or is unknown and `None`, is left out. Pages of continuous batching bring names of
    their own.
    """

    def checking(forward: Callable[..., Any]) -> Callable[..., Any]:
        known = KEYWORDS.union(inspect.signature(forward).parameters, more) - {"self", "kwargs"}

        @wraps(forward)
        def checked(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if kwargs.keys() <= known:
                return forward(self, *args, **kwargs)
            kwargs = with_one_cache({name: value for name, value in kwargs.items() if name not in drops})
            if any(isinstance(given, PagedAttentionCache) for given in (*args, *kwargs.values())):
                return forward(self, *args, **kwargs)
            kwargs = {name: value for name, value in kwargs.items() if name in known or value is not None}
            if unknown := [name for name in kwargs if name not in known]:
                refuse_unknown(self, unknown, known | names_inside(self))
            return forward(self, *args, **kwargs)

        return checked

    return checking


def with_one_cache(arguments: dict[str, Any], name: str = "cache") -> dict[str, Any]:
    """Return arguments in which the cache, given by either name, has this one."""
    names = "cache", "past_key_values"
    given = [arguments[each] for each in names if arguments.get(each) is not None]
    if len(given) > 1:
        raise ValueError("the cache is given as cache and as past_key_values, its older name: give one")
    if MODELS_FILL_PAGES and arguments.get("past_key_values") is not None and not is_tracing():
        warnings.warn("`past_key_values` is deprecated: use `cache`", FutureWarning, stacklevel=3)
    others = {each: value for each, value in arguments.items() if each not in names}
    return others | {name: given[0]} if given else others


def names_inside(model: nn.Module) -> frozenset[str]:
    """Return what the model inside a model takes, to which keywords are passed on."""
    inside = getattr(model, "model", None)
    return frozenset() if inside is None else parameters_of(type(inside))


@remembered
def parameters_of(kind: type[nn.Module]) -> frozenset[str]:
    return frozenset(inspect.signature(kind.forward).parameters) - {"self", "kwargs"}


def refuse_unknown(model: nn.Module, names: list[str], known: frozenset[str]) -> None:
    """Raise a `TypeError` if names are not known, or warn where transformers is newer than this code."""
    for name in names:
        if name in known:
            continue
        nearest = get_close_matches(name, known, n=1)
        remedy = f"did you mean {nearest[0]}?" if nearest else "leave it out"
        if not is_newer_than_tested():
            raise TypeError(f"{type(model).__name__} does not know the argument {name!r}: {remedy}")
        logger.warning_once(
            f"The model does not know the argument {name!r}, which only attention kernels may read: {remedy}"
        )


def find_private(path: str, works: Callable[[Any], bool], otherwise: str) -> Any:
    """Return what stands at a private place of torch, if it works; else `None`, and one line says so."""
    try:
        found = attrgetter(path)(torch)
        problem = "" if works(found) else "it answers otherwise"
    except Exception as error:  # whatever another version raises
        found, problem = None, str(error).partition("\n")[0]
    if not problem:
        return found
    logger.warning_once(f"torch.{path} of torch {torch.__version__} is not used ({problem}): {otherwise}")
    return None


peek_at_transforms = find_private(
    "_C._functorch.peek_interpreter_stack",
    lambda peek: peek() is None,
    "layers compute as in a graph, without kernels that bring gradients of their own",
)


def is_tracing() -> bool:
    """Return whether the forward pass is being compiled, exported or transformed by `torch.func`.

    Nothing may then depend on data, and kernels that bring gradients of their own are left out: `vmap` over
    `grad` gives the gradient of each sample, and knows torch's operations alone.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        return True
    return peek_at_transforms is None or peek_at_transforms() is not None


def softmax_gradient(gradient: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient of scores from that of their softmax over the last dimension. The definition."""
    return weights * (gradient - (gradient * weights).sum(-1, keepdim=True))


def equals_definition(operator: Any) -> bool:
    """Return whether torch's operator computes the gradient of a softmax."""
    weights = torch.tensor([[0.25, 0.75]], device="cpu", dtype=torch.float32)
    gradient = torch.tensor([[1.0, -1.0]], device="cpu", dtype=torch.float32)
    return torch.allclose(operator(gradient, weights, -1, weights.dtype), softmax_gradient(gradient, weights))


softmax_operator = find_private(
    "ops.aten._softmax_backward_data",
    equals_definition,
    "gradients of attention are computed in more passes over its weights",
)


def softmax_backward(gradient: Tensor, weights: Tensor) -> Tensor:
    """Do the same by torch's operator, in one pass: in float32 where rows in 16 bits fill no register."""
    if softmax_operator is None:
        return softmax_gradient(gradient, weights)
    dtype = torch.promote_types(weights.dtype, torch.float32 if weights.shape[-1] < 32 else weights.dtype)
    return softmax_operator(gradient.to(dtype), weights.to(dtype), -1, dtype).to(weights.dtype)


flash_operator = find_private(
    "ops.aten._flash_attention_forward",
    callable,
    "packed sequences on a GPU have no flash kernel",
)


@remembered
def compiler_settings() -> Any:
    """Return what changes settings of torch's compiler for a while, whose import takes long."""
    return find_private(
        "_dynamo.config.patch",
        lambda patch: bool(patch(recompile_limit=8)),
        "patterns beyond torch's limit of graphs are computed without a compiled kernel",
    )


def graphs_at_most(number: int) -> AbstractContextManager[None]:
    patch = compiler_settings()
    return nullcontext() if patch is None else patch(recompile_limit=number)


fake_tensor = find_private(
    "_subclasses.fake_tensor.FakeTensor",
    lambda kind: issubclass(kind, Tensor),
    "layers are called one by one where sizes are computed without numbers",
)
"""The type of tensors that have sizes and no numbers, as in a graph that is being made."""


def version_of(tensor: Tensor) -> int | None:
    """Count how often torch has changed a tensor in place; `None`: unknown, as of inference tensors."""
    return None if tensor.is_inference() else getattr(tensor, "_version", None)


HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_compiled_call_impl",
)
"""What torch's modules call beside their forward pass, or instead of it."""


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module's call does more than its forward pass, or may do so."""
    return any(getattr(module, name, True) for name in HOOKS)


def cut_into_blocks(weight: Tensor, num_rows: int) -> Tensor:
    """Copy a weight (R, C) into the blocks that oneDNN reads for `num_rows` vectors."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, num_rows)


def multiply_blocks(
    x: Tensor, blocks: Tensor, bias: Tensor | None, activation: str = "none", algorithm: str = ""
) -> Tensor:
    """Compute f(x W^T + b) with an activation f, or without one: (..., C) -> (..., R)."""
    return torch.ops.mkldnn._linear_pointwise.default(x, blocks, bias, activation, [], algorithm)


@remembered
def multiplies_blocks(dtype: torch.dtype) -> bool:
    """Try the two operators once on a small product of weights of a type, and warn if they fail."""
    x, weight = torch.ones(1, 16, dtype=dtype, device="cpu"), torch.eye(16, dtype=dtype, device="cpu")
    try:
        result = multiply_blocks(x, cut_into_blocks(weight, 8), None)
        problem = "" if torch.equal(result, x) else f"ones became {result.tolist()}"
    except Exception as error:  # whatever another version raises
        problem = str(error).partition("\n")[0]
    if problem:
        logger.warning_once(
            f"Generation is slower than it could be: torch {torch.__version__} does not support prepacked "
            f"weights of {dtype} on this CPU ({problem})."
        )
    return not problem


def call_on_unsent(handle: Callable[[Exception, object], None]) -> None:
    """Let queues of this process call `handle` with what they could not send, instead of printing it."""
    Queue._on_queue_feeder_error = staticmethod(handle)  # pyright: ignore[reportAttributeAccessIssue]


def renew_end_of_workers(loader: Any) -> None:
    """Give a data loader's iterator a new signal of its end, whose lock no killed worker holds."""
    loader._workers_done_event = multiprocessing.Event()


def change_each(operation: str, tensors: Sequence[Tensor], *arguments: Any, **options: Any) -> None:
    """Apply an operation in place, such as `lerp_`, to each of some tensors: on a GPU in one call.

    Of `arguments`, lists have an item for each tensor.
    """
    together = getattr(torch, f"_foreach_{operation}", None)
    if together is not None:
        together(tensors, *arguments, **options)
        return
    for number, tensor in enumerate(tensors):
        own = (each[number] if isinstance(each, list | tuple) else each for each in arguments)
        getattr(tensor, operation)(*own, **options)


@contextmanager
def with_compiler_settings(compiler: Mapping[str, Any], gradients: Mapping[str, Any]) -> Iterator[None]:
    """Change settings of torch's compiler, and of how it makes graphs of gradients, meanwhile.

    A setting that this torch does not have is left out, with a warning.
    """
    from torch import _dynamo  # which takes long to import
    from torch._functorch import config

    with ExitStack() as changed:
        places: Any = (_dynamo.config, compiler), (config, gradients)
        for module, settings in places:
            missing = [name for name in settings if not hasattr(module, name)]
            if missing:
                warnings.warn(
                    f"torch {torch.__version__} has no setting {', '.join(missing)} of its compiler: layers "
                    "may be compiled more often, or not at all",
                    stacklevel=3,
                )
            known = {name: value for name, value in settings.items() if name not in missing}
            changed.enter_context(module.patch(known))
        yield


def first_row(tensor: DTensor) -> int:
    """Return which row of a whole tensor the first of this process's rows is."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return offset[0]


def forget_accelerator() -> None:
    """Let the next `Accelerator` of this process choose its precision anew."""
    AcceleratorState._reset_state()
