"""The student: its architecture and its first weights, taken from the teacher.

    teacher                          student
    embeddings.embed_tokens     ->   embeddings.embed_tokens
    embeddings.token_types           -                            DistilBERT has neither token types ...
    layers.0, 2, 4, ...         ->   layers.0, 1, 2, ...
    norm, transform, lm_head    ->   norm, transform, lm_head
    next_sentence_head               -                            ... nor a pooler (Sanh et al., 2019)

Of a sequence-to-sequence model, encoder and decoder lose layers separately, and what is left learns on
(Shleifer and Rush, 2020, section 3: shrink and fine-tune). A student may also be narrower than its teacher;
then it begins with random weights.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor

from ..configs.messages import first_line, shortened
from ..configs.schema import require_fields
from ..modeling import (
    TercetConfig,
    TercetEncoderConfig,
    TercetPreTrainedModel,
    TercetSeq2SeqConfig,
)
from ..modeling.configuration_rotary import join_overrides
from .layers import choose_layers
from .recipe import StudentRecipe

Chosen = Mapping[str, list[int]]
"""Stack (`encoder`, `decoder`) -> the teacher's layers that a student takes over, one for each of its own."""

KEYS = "student.layers", "student.num_layers"
"""What a recipe calls the choice of layers, and their number."""

LAYER = re.compile(r"^(model\.(?:encoder\.|decoder\.|))layers\.(\d+)\.")
"""Where a tensor's name says to which layer of which stack it belongs."""


def chosen_layers(recipe: StudentRecipe, teacher: TercetConfig) -> Chosen:
    """Choose the layers of each stack of a teacher."""
    depth = teacher.num_hidden_layers
    if not isinstance(teacher, TercetSeq2SeqConfig):
        stack = "encoder" if isinstance(teacher, TercetEncoderConfig) else "decoder"
        for name, instead in (("decoder_layers", "layers"), ("num_decoder_layers", "num_layers")):
            if getattr(recipe, name) is not None:
                raise ValueError(
                    f"student.{name} is set, but the teacher is a {teacher.model_type} with one stack: "
                    f"set student.{instead}"
                )
        return {stack: choose_layers(recipe.layers, depth, recipe.num_layers, *KEYS)}
    of_decoder, keys = recipe.decoder_layers, ("student.decoder_layers", "student.num_decoder_layers")
    count = recipe.num_decoder_layers
    if of_decoder is None:
        of_decoder = recipe.layers
        if count is None:
            count, keys = recipe.num_layers, KEYS
    decoder_depth = teacher.decoder_num_hidden_layers or depth
    return {
        "encoder": choose_layers(recipe.layers, depth, recipe.num_layers, *KEYS),
        "decoder": choose_layers(of_decoder, decoder_depth, count, *keys),
    }


def student_config(recipe: StudentRecipe, teacher: TercetConfig, chosen: Chosen) -> TercetConfig:
    """Describe the student: the teacher with the chosen layers, without token types, with the overrides."""
    fields = teacher.to_dict()
    first = next(iter(chosen.values()))
    fields |= {"num_hidden_layers": len(first), "layer_types": picked(teacher.layer_types, first)}
    # What stands below a layer that comes first now was no layer's output, unless it was first before.
    fields["first_norm"] = teacher.first_norm or first[0] > 0
    if isinstance(teacher, TercetSeq2SeqConfig):
        decoder = chosen["decoder"]
        fields["decoder_num_hidden_layers"] = len(decoder)
        fields["decoder_layer_types"] = picked(teacher.decoder_layer_types, decoder)
    if recipe.token_types == "dropped":
        fields["type_vocab_size"] = 0
    require_known(type(teacher), recipe.overrides)
    for name in ("architectures", "model_type", "transformers_version", "auto_map", "dtype"):
        fields.pop(name, None)
    if "hidden_size" in recipe.overrides or "num_attention_heads" in recipe.overrides:
        fields |= dict.fromkeys(WIDTHS & fields.keys() - recipe.overrides.keys())
    of_decoder = {f"decoder_{name}" for name in recipe.overrides} & fields.keys()
    fields |= dict.fromkeys(of_decoder - recipe.overrides.keys())
    try:
        return type(teacher)(**fields | join_overrides(fields, recipe.overrides))
    except StrictDataclassError as error:
        raise ValueError(f"student.overrides: {first_line(error)}") from None


WIDTHS = {
    *("head_dim", "num_key_value_heads", "decoder_head_dim", "decoder_num_key_value_heads"),
    "decoder_num_attention_heads",
}
"""Fields that follow from others by default; of another width they would be the teacher's."""


OF_LAYERS = {
    "num_hidden_layers": "student.num_layers",
    "layer_types": "student.layers",
    "decoder_num_hidden_layers": "student.num_decoder_layers",
    "decoder_layer_types": "student.decoder_layers",
}
"""Fields that follow from the choice of layers -> the keys that make it."""


def require_known(config_class: type[TercetConfig], overrides: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if an override is no field, or one that something else decides."""
    try:
        require_fields(config_class, list(overrides))
    except ValueError as error:
        raise ValueError(str(error).replace("model.overrides", "student.overrides")) from None
    if "vocab_size" in overrides:
        raise ValueError(
            "student.overrides.vocab_size: student and teacher must share a vocabulary; remove it"
        )
    for name, keys in OF_LAYERS.items():
        if name in overrides:
            raise ValueError(f"student.overrides.{name}: the layers are selected by {keys}; set it there")


def picked(types: list[str] | None, layers: list[int]) -> list[str] | None:
    """Keep the types of the chosen layers, where layers have types."""
    return None if types is None else [types[layer] for layer in layers]


def build_student(
    recipe: StudentRecipe,
    teacher: TercetPreTrainedModel,
    model_class: type[TercetPreTrainedModel],
    seed: int,
) -> TercetPreTrainedModel:
    """Build a student with its first weights: the teacher's (in float32, on the CPU), or random ones."""
    chosen = chosen_layers(recipe, teacher.config)
    torch.manual_seed(seed)
    student = model_class(student_config(recipe, teacher.config, chosen))
    if recipe.initialization == "teacher":
        take_over(student, teacher, chosen)
    if student.can_generate() and teacher.generation_config is not None:
        student.generation_config = teacher.generation_config
    return student


@torch.no_grad()
def take_over(student: TercetPreTrainedModel, teacher: TercetPreTrainedModel, chosen: Chosen) -> None:
    """Copy into every tensor of a student the teacher's tensor that it comes from."""
    sources, own = origins(student, chosen), dict(student.named_parameters())
    tensors = whole_tensors(teacher)
    misfits = [
        name
        for name, source in sources.items()
        if source not in tensors or tensors[source].shape != own[name].shape
    ]
    if misfits:
        raise ValueError(
            f"the teacher has no weights of these shapes for {shortened(misfits)}: leave out the "
            "student.overrides that change them, or set student.initialization=random"
        )
    for name, source in sources.items():
        own[name].copy_(tensors[source])


def origins(student: TercetPreTrainedModel, chosen: Chosen) -> dict[str, str]:
    """Map a student's tensors to those of the teacher that they come from, by their names."""

    def origin(name: str) -> str:
        found = LAYER.match(name)
        if found is None:
            return name
        prefix, number = found.groups()
        stack = prefix.removeprefix("model.").rstrip(".")
        layers = chosen[stack] if stack else next(iter(chosen.values()))
        return f"{prefix}layers.{layers[int(number)]}.{name[found.end() :]}"

    return {name: origin(name) for name, _ in student.named_parameters()}


def whole_tensors(model: TercetPreTrainedModel) -> dict[str, Tensor]:
    """Name all tensors of a model, the tied ones by each of their names; a model without head as with one."""
    prefix = "" if hasattr(model, "model") else "model."
    return {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()}
