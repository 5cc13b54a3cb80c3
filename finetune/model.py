"""The model that fine-tuning begins with: pretrained weights, ours or a stock model's, and the task's head.

A head that the weights already are for is kept: BERT's pooler, which pretraining has taught to read pairs, or
that of an earlier fine-tuning on the same labels. All else of it is drawn at random.

What learns is the whole model, the layers that are not frozen or, by low-rank adaptation (LoRA; Hu et al.,
2022), small additions to pretrained weights that stay as they are. A finished model has its additions merged,
and is loaded like any other; they are kept beside it as well.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from .. import modeling
from ..configs.messages import first_line, quietly, shortened
from ..configs.schema import require_fields
from ..modeling import TercetPreTrainedModel
from ..modeling.configuration_rotary import join_overrides
from ..modeling.saved.checkpoint import Checkpoint
from ..modeling.saved.inheritance import inherit, inherit_writing
from ..modeling.saved.model_folder import pads, require_fit
from ..modeling.saved.weights import load_whole
from .recipe import LoraRecipe
from .tasks.task import Task

IN_WORDS = {
    "Encoder": "an encoder",
    "Decoder": "a decoder",
    "Seq2Seq": "a sequence-to-sequence model",
    "Elmo": "an ELMo",
    "Tagger": "a tagger",
}
"""What a member is called in a sentence."""

MEMBERS = {
    "tercet_encoder": "Encoder",
    "tercet_decoder": "Decoder",
    "tercet_seq2seq": "Seq2Seq",
    "tercet_elmo": "Elmo",
    "tercet_tagger": "Tagger",
}
"""Type of a configuration -> the member in the names of its models."""


@dataclass(frozen=True)
class Start:
    """The model on disk that learning begins with, and what of it is kept."""

    model: Checkpoint
    beside: tuple[Checkpoint, ...] | None = None
    """Further models, if a tagger reads word vectors: theirs lie beside those of `model`."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration that are set otherwise."""
    from_scratch: bool = False
    """Whether all weights are drawn."""
    new_head: bool = False
    """Whether a head is drawn although the model has one."""


@dataclass(frozen=True)
class TaskModel:
    """A model with the head of a task, before it learns."""

    model: TercetPreTrainedModel
    """On the CPU, in float32."""
    tokenizer: PreTrainedTokenizerBase
    """Its own copy, with what the task needs."""
    fresh: list[str]
    """Tensors that are drawn at random; those of a stock model's head have its names."""


def load_task_model(start: Start, task: Task, seed: int) -> TaskModel:
    """Load a pretrained model and give it the head of a task; the seed is of the weights that are drawn."""
    checkpoint = start.model
    if start.beside is not None:
        from .tagger import build_tagger

        models = [checkpoint, *start.beside]
        tagger, tokenizer, fresh = build_tagger(models, task, seed, start.overrides, start.from_scratch)
        return TaskModel(cast(TercetPreTrainedModel, tagger), tokenizer, fresh)
    config = checkpoint.config
    keeps_head = not start.new_head and knows_labels(checkpoint, task)
    torch.manual_seed(seed)
    if config.model_type not in MEMBERS:
        checkpoint.require_transformer()
    ours = type(config) if checkpoint.is_ours else imported_as(config)
    require_head(checkpoint, ours, task)
    found, drawn = (checkpoint.ours(), []) if checkpoint.is_ours else load_foreign(checkpoint, task)
    source = cast(TercetPreTrainedModel, found)
    tokenizer = checkpoint.own_tokenizer()
    require_fit(tokenizer, source.config)
    pads(tokenizer, checkpoint.name)
    task.prepare_tokenizer(tokenizer)
    model = with_head(source, task, seed, start.overrides)
    if start.from_scratch:
        fresh = sorted(dict(model.named_parameters()))
    else:
        fresh = inherit(model, source, keeps_head=keeps_head)
    task.prepare_model(model, tokenizer)
    return TaskModel(model, tokenizer, sorted({*fresh, *drawn}))


def require_head(checkpoint: Checkpoint, config_class: Any, task: Task) -> None:
    """Raise a `ValueError` if the member that a model is, by a class of configurations, has no such head."""
    member = MEMBERS[config_class.model_type]
    able = [each for each in MEMBERS.values() if f"Tercet{each}{task.head}" in modeling.__all__]
    if member not in able:
        needed = " or ".join(IN_WORDS[each] for each in able)
        raise ValueError(
            f"model.path {checkpoint.name} is {IN_WORDS[member]} ({checkpoint.config.model_type}), but "
            f"task.kind {task.recipe.kind} needs {needed}: name one in model.path"
        )


def imported_as(config: PreTrainedConfig) -> Any:
    from ..modeling.stock.architectures import architecture_of

    return architecture_of(config).config


def load_foreign(checkpoint: Checkpoint, task: Task) -> tuple[TercetPreTrainedModel, list[str]]:
    """Bring in a stock model with its own form of the head, if it has one, so that poolers come along.

    Returns:
        The model, and the names of the tensors that were drawn because its files do not have them, or have
        them for other labels.
    """
    from ..modeling.stock.architectures import architecture_of
    from ..modeling.stock.models import as_ours, imported
    from ..modeling.stock.weights import Dropped

    config = checkpoint.config
    architecture = architecture_of(config)
    own = (each for each in architecture.counterparts if each.ours.endswith(task.head))
    counterpart = next(own, None)
    if counterpart is None or calls_base_otherwise(config, counterpart.stock):
        return as_ours(checkpoint), []
    entry_of = partial(architecture.entry_of, counterpart=counterpart)
    stock, fit = load_whole(
        getattr(transformers, counterpart.stock),
        checkpoint.folder,
        may_lack=lambda name: "pooler" in name or entry_of(name) is None,
        may_leave=lambda name: entry_of(name) is None or isinstance(entry_of(name), Dropped),
        dtype=torch.float32,
        **task.config_fields,
    )
    return imported(stock, checkpoint), sorted({*fit.missing, *fit.misshapen})


def calls_base_otherwise(config: PreTrainedConfig, stock: str) -> bool:
    """Return whether a saved model calls what its head stands on otherwise than another stock class does.

    Such as `LlamaForQuestionAnswering`, whose `transformer` is all other Llamas' `model`, so that it finds
    none of their weights.
    """
    saved = getattr(transformers, (config.architectures or [""])[0], None)
    return saved is not None and saved.base_model_prefix != getattr(transformers, stock).base_model_prefix


def knows_labels(checkpoint: Checkpoint, task: Task) -> bool:
    """Return whether a model's head, if it has one for the task, is for the task's labels in their order.

    The numbers of a head whose labels have no names (`LABEL_0`, ...) are those of the rows, if rows or recipe
    number their labels. Names have an order by the alphabet alone, which says nothing about such a head.
    """
    config = checkpoint.config
    architecture = (config.architectures or [""])[0]
    wanted = task.config_fields.get("id2label")
    if wanted is None or not architecture.endswith(task.head):
        return True
    known = [str(name) for _, name in sorted((config.id2label or {}).items())]
    names = list(wanted.values())
    if known == names:
        return True
    if len(known) != len(names) or known != [f"LABEL_{number}" for number in range(len(known))]:
        raise ValueError(
            f"{checkpoint.name} is a {architecture} of {len(known)} labels ({shortened(known)}), but the "
            f"data have {len(names)} ({shortened(names)}): set model.new_head=true to replace its head"
            + to_keep_a_head(known, names)
        )
    of_numbers = names == [str(number) for number in range(len(names))]
    if of_numbers or len(names) == 1:
        return True
    nameless = f"the head of {checkpoint.name} has no names for its labels"
    if is_kept := bool(task.facts.get("are_numbered")):
        warnings.warn(f"{nameless}, which are taken for {shortened(names)}, in this order", stacklevel=2)
    else:
        warnings.warn(
            f"{nameless}, and rows with names do not say in which order it has them: it is replaced by a new "
            "one; to keep it, set task.label_names to the names in the head's order",
            stacklevel=2,
        )
    return is_kept


def to_keep_a_head(known: list[str], names: list[str]) -> str:
    """Describe how a head of as many labels as the data have can be kept, if it can."""
    if sorted(known) == sorted(names) or names == [str(number) for number in range(len(known))]:
        return f", or task.label_names=[{','.join(known)}], its order, if these are the rows' labels"
    if sorted(map(str.casefold, known)) == sorted(map(str.casefold, names)):
        return ", or write the rows' labels in upper and lower case as the head does"
    return ""


def with_head(
    source: TercetPreTrainedModel, task: Task, seed: int, overrides: Mapping[str, Any]
) -> TercetPreTrainedModel:
    """Build the model of a task, as another one is configured, with weights that are drawn."""
    config = type(source.config).from_dict(source.config.to_dict())
    require_fields(type(config), list(overrides))
    try:
        for name, value in {**task.config_fields, **join_overrides(config.to_dict(), overrides)}.items():
            setattr(config, name, value)
        config = type(config).from_dict(config.to_dict())  # which checks all fields together
    except StrictDataclassError as error:
        raise ValueError(f"model.overrides: {first_line(error)}") from None
    torch.manual_seed(seed)
    model = getattr(modeling, f"Tercet{MEMBERS[config.model_type]}{task.head}")(config)
    inherit_writing(model, source)
    return model


def learner_of(model: TercetPreTrainedModel, lora: LoraRecipe | None, frozen_layers: int) -> nn.Module:
    """Let the part of a model learn that a recipe says."""
    if lora is None:
        freeze(model, frozen_layers)
        return model
    if frozen_layers:
        raise ValueError("lora freezes all layers: remove training.frozen_layers")
    return with_additions(model, lora)


def freeze(model: nn.Module, num_layers: int) -> None:
    """Keep the embeddings and the lowest layers of each stack as they are; -1: all but the head."""
    base: Any = model.get_submodule("model")
    if num_layers < 0:
        base.requires_grad_(False)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError(
                f"training.frozen_layers is {num_layers}, but {type(model).__name__} has no head with "
                f"trainable weights: freeze fewer layers"
            )
        return
    if num_layers and not isinstance(model, TercetPreTrainedModel):
        raise ValueError(
            f"training.frozen_layers is {num_layers}, but {type(model).__name__} has no layers to freeze one "
            "by one: use -1 for all, or 0 for none"
        )
    stacks = [
        module for module in base.modules() if isinstance(getattr(module, "layers", None), nn.ModuleList)
    ]
    for stack in stacks if num_layers else ():
        if num_layers > len(stack.layers):
            raise ValueError(
                f"training.frozen_layers is {num_layers}, but the model has {len(stack.layers)} layers: "
                "freeze fewer, or -1 for all"
            )
        stack.embeddings.requires_grad_(False)
        stack.layers[:num_layers].requires_grad_(False)


def with_additions(model: TercetPreTrainedModel, lora: LoraRecipe) -> nn.Module:
    """Let additions to a model's weights, and a task's head, learn instead of the model, which is changed.

    A language model's head is no task's: it is pretrained, and most often the table of the embeddings.
    """
    try:
        import peft
    except ImportError:
        raise ValueError("lora needs peft: pip install 'tercet[lora]', or leave lora out") from None
    words = model.get_output_embeddings()
    heads = [name for name, head in model.named_children() if name != "model" and head is not words]
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules),
        modules_to_save=heads,
    )
    try:
        with warnings.catch_warnings():  # peft reads an attribute by the name that transformers 6 removes
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")
            return peft.get_peft_model(model, config)
    except ValueError:
        raise ValueError(
            f"lora.target_modules is {[*lora.target_modules]}, but {type(model).__name__} has no layers of "
            "these names: leave it out, which takes all of its blocks' linear ones"
        ) from None


def merged(learner: nn.Module, adapter: Path) -> tuple[TercetPreTrainedModel, dict[str, Tensor]]:
    """Keep the additions in a folder, then merge them into the model; give it and its weights."""
    additions: Any = learner
    with quietly():
        additions.save_pretrained(adapter)
    model = additions.merge_and_unload()
    return model, model.state_dict()
