"""From what a recipe says of signals to the signals, once it is known which models they compare."""

from collections.abc import Sequence
from itertools import pairwise

from ..modeling import TercetConfig, TercetSeq2SeqConfig
from .signal_recipes import (
    AttentionMapsRecipe,
    CosineRecipe,
    GeneralizedDivergenceRecipe,
    HiddenStatesRecipe,
    LogitMSERecipe,
    RelationsRecipe,
    ReverseKLRecipe,
    SignalRecipe,
    SoftTargetsRecipe,
)
from .signals import GeneralizedDivergence, LogitMSE, ReverseKL, Signal, SoftTargets
from .state_signals import AttentionMaps, Cosine, HiddenStates, LastStates, Relations


def build_signals(
    recipes: Sequence[SignalRecipe], student: TercetConfig, teacher: TercetConfig
) -> list[Signal]:
    """Build signals for two models.

    Raises:
        ValueError: A signal is there twice, or cannot compare models of these sizes.
    """
    kinds = sorted(recipe.kind for recipe in recipes)
    if twice := [kind for kind, other in pairwise(kinds) if kind == other]:
        raise ValueError(f"general.signals has {twice[0]} twice: list each kind once")
    return [build_signal(recipe, student, teacher) for recipe in recipes]


def build_signal(recipe: SignalRecipe, student: TercetConfig, teacher: TercetConfig) -> Signal:
    """Build one signal.

    Raises:
        ValueError: It cannot compare models of these sizes.
    """
    weight = recipe.weight
    match recipe:
        case SoftTargetsRecipe(temperature=temperature):
            return SoftTargets(weight, temperature)
        case ReverseKLRecipe(temperature=temperature):
            return ReverseKL(weight, temperature)
        case GeneralizedDivergenceRecipe(temperature=temperature, beta=beta):
            return GeneralizedDivergence(weight, temperature, beta)
        case LogitMSERecipe():
            return LogitMSE(weight)
        case CosineRecipe():
            require_one_width("cosine", student, teacher)
            return Cosine(weight)
        case HiddenStatesRecipe(layers=layers):
            if layers == "all":
                return HiddenStates(weight)
            require_one_width("hidden_states of the last layer alone", student, teacher)
            return LastStates(weight)
        case AttentionMapsRecipe():
            require_comparable_maps(student, teacher)
            return AttentionMaps(weight)
        case RelationsRecipe(heads=heads, teacher_layer=layer):
            return build_relations(weight, heads or teacher.num_attention_heads, layer, student, teacher)


def build_relations(
    weight: float, heads: int, layer: int, student: TercetConfig, teacher: TercetConfig
) -> Relations:
    """Build the comparison of relations.

    Raises:
        ValueError: Vectors cannot be cut into so many parts, or the teacher has no such layer.
    """
    for role, config in (("student", student), ("teacher", teacher)):
        for width in widths_of_vectors(config):
            if width % heads:
                raise ValueError(
                    f"relations.heads is {heads}, but the {role}'s vectors of {width} numbers cannot be "
                    f"split into this many equal parts: choose a divisor"
                )
    depth = min(depths_of(teacher))
    if not -depth <= layer < depth:
        raise ValueError(
            f"relations.teacher_layer is {layer}, but the teacher has {depth} layers: choose 0 to {depth - 1}"
        )
    return Relations(weight, heads, layer)


def require_one_width(signal: str, student: TercetConfig, teacher: TercetConfig) -> None:
    """Raise a `ValueError` if two models differ in width."""
    if student.hidden_size != teacher.hidden_size:
        raise ValueError(
            f"{signal} compares states of one width, but the student's have {student.hidden_size} numbers "
            f"and the teacher's {teacher.hidden_size}: choose hidden_states of all layers, which has a "
            f"learned projection"
        )


def require_comparable_maps(student: TercetConfig, teacher: TercetConfig) -> None:
    """Raise a `ValueError` if two models differ in their heads of attention, or do not read whole texts."""
    for own, theirs in zip(stack_configs(student), stack_configs(teacher), strict=True):
        if "sliding_attention" in {*(own.layer_types or []), *(theirs.layer_types or [])}:
            raise ValueError(
                "attention_maps needs full attention, but there are layers with sliding windows: choose "
                "hidden_states"
            )
        if own.num_attention_heads != theirs.num_attention_heads:
            raise ValueError(
                f"attention_maps needs equal numbers of heads, but the student has "
                f"{own.num_attention_heads} and "
                f"the teacher {theirs.num_attention_heads}: choose relations, which does not need equal "
                f"numbers of heads"
            )


def widths_of_vectors(config: TercetConfig) -> list[int]:
    """Give the numbers in the joined queries, and in the joined keys and values, of a token in each stack."""
    return [
        (stack.head_dim or 0) * heads
        for stack in stack_configs(config)
        for heads in (stack.num_attention_heads, stack.num_key_value_heads or stack.num_attention_heads)
    ]


def stack_configs(config: TercetConfig) -> list[TercetConfig]:
    """Describe each stack alone."""
    if isinstance(config, TercetSeq2SeqConfig):
        return [config.encoder_config(), config.decoder_config()]
    return [config]


def depths_of(config: TercetConfig) -> tuple[int, ...]:
    """Count the layers of each stack."""
    if isinstance(config, TercetSeq2SeqConfig):
        return config.num_hidden_layers, config.decoder_num_hidden_layers or config.num_hidden_layers
    return (config.num_hidden_layers,)


def projected(signals: Sequence[Signal], student: TercetConfig, teacher: TercetConfig) -> list[str]:
    """Name the projections that signals need to compare states of different widths."""
    compares = any(isinstance(signal, HiddenStates) for signal in signals)
    return ["layers", "embeddings"] if compares and student.hidden_size != teacher.hidden_size else []


def require_cached(signals: Sequence[Signal], *, is_complete: bool) -> None:
    """Raise a `ValueError` if a cached teacher cannot give what a signal compares."""
    for signal in signals:
        if (reason := signal.refusal(is_complete=is_complete)) is not None:
            raise ValueError(f"general.cache: {reason}; leave cache out, or the signal")
