"""The losses between student and teacher in a recipe (`general.losses`), a dataclass for each,
which builds it.

kind                    loss                                                 narrower student  cached teacher
soft_targets            KL divergence at each target, at a temperature       yes               yes
reverse_kl              KL divergence in the reverse direction               yes               with all tokens
generalized_divergence  generalized Jensen-Shannon divergence                yes               with all tokens
logit_mse               squared error of logits at each target               yes               no
cosine                  cosine of the last hidden states                     no                yes
hidden_states           squared error of hidden states, of all layers or last projected         the last
attention_maps          squared error of attention scores before the softmax with equal heads  no
relations               self-attention relations of queries, keys and values yes               no
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from ..modeling import TercetConfig, TercetSeq2SeqConfig
from ..pretraining.objectives.base_recipe import Share
from ..training.recipe import Positive
from .losses import (
    AttentionMapLoss,
    CosineLoss,
    DistillationLoss,
    GeneralizedDivergenceLoss,
    HiddenStateLoss,
    LastHiddenStateLoss,
    LogitMSELoss,
    RelationLoss,
    ReverseKLLoss,
    SoftTargetLoss,
)

Weight = Annotated[float, Field(gt=0)]
"""Weight of a term in the loss; leave a loss out instead of setting its weight to 0."""

Temperature = Annotated[float, Field(gt=0)]
"""Divisor of the logits before the softmax: above 1, unlikely tokens have more weight."""


class BaseLossRecipe(ABC):
    """What a recipe says of a loss. Abstract: each loss adds its fields, and builds itself."""

    @abstractmethod
    def build(self, student: TercetConfig, teacher: TercetConfig) -> DistillationLoss:
        """Build the loss for two models.

        Raises:
            ValueError: It cannot compare models of these sizes.
        """


@dataclass(frozen=True)
class SoftTargetsRecipe(BaseLossRecipe):
    """Match the teacher's distribution (Hinton et al., 2015; Sanh et al., 2019)."""

    kind: Literal["soft_targets"]
    weight: Weight = 5.0
    temperature: Temperature = 2.0
    """Temperature of both distributions."""

    def build(self, student: TercetConfig, teacher: TercetConfig) -> SoftTargetLoss:
        """Build the loss."""
        return SoftTargetLoss(self.weight, self.temperature)


@dataclass(frozen=True)
class ReverseKLRecipe(BaseLossRecipe):
    """Reverse KL divergence: mode-seeking instead of mode-covering (Gu et al., 2024)."""

    kind: Literal["reverse_kl"]
    weight: Weight = 1.0
    temperature: Temperature = 1.0
    """Temperature of both distributions."""

    def build(self, student: TercetConfig, teacher: TercetConfig) -> ReverseKLLoss:
        """Build the loss."""
        return ReverseKLLoss(self.weight, self.temperature)


@dataclass(frozen=True)
class GeneralizedDivergenceRecipe(BaseLossRecipe):
    """Generalized Jensen-Shannon divergence, between forward and reverse KL (Agarwal et al., 2024)."""

    kind: Literal["generalized_divergence"]
    weight: Weight = 1.0
    beta: Share = 0.5
    """Share of the teacher in the mixture; at 0 it is the divergence of soft targets, at 1 reverse KL."""
    temperature: Temperature = 1.0
    """Temperature of both distributions."""

    def build(self, student: TercetConfig, teacher: TercetConfig) -> GeneralizedDivergenceLoss:
        """Build the loss."""
        return GeneralizedDivergenceLoss(self.weight, self.temperature, self.beta)


@dataclass(frozen=True)
class LogitMSERecipe(BaseLossRecipe):
    """Match logits (Ba and Caruana, 2014)."""

    kind: Literal["logit_mse"]
    weight: Weight = 1.0

    def build(self, student: TercetConfig, teacher: TercetConfig) -> LogitMSELoss:
        """Build the loss."""
        return LogitMSELoss(self.weight)


@dataclass(frozen=True)
class CosineRecipe(BaseLossRecipe):
    """Match the directions of the last hidden states (Sanh et al., 2019)."""

    kind: Literal["cosine"]
    weight: Weight = 1.0

    def build(self, student: TercetConfig, teacher: TercetConfig) -> CosineLoss:
        """Build the loss."""
        require_one_width("cosine", student, teacher)
        return CosineLoss(self.weight)


@dataclass(frozen=True)
class HiddenStatesRecipe(BaseLossRecipe):
    """Match hidden states, of a narrower student through a learned projection (Jiao et al., 2020)."""

    kind: Literal["hidden_states"]
    weight: Weight = 1.0
    layers: Literal["all", "last"] = "all"
    """`all`: the embeddings and the output of every layer; `last`: the output of the last layer."""

    def build(self, student: TercetConfig, teacher: TercetConfig) -> DistillationLoss:
        """Build the loss."""
        if self.layers == "all":
            return HiddenStateLoss(self.weight)
        require_one_width("hidden_states of the last layer alone", student, teacher)
        return LastHiddenStateLoss(self.weight)


@dataclass(frozen=True)
class AttentionMapsRecipe(BaseLossRecipe):
    """Match the attention scores of all layers (Jiao et al., 2020)."""

    kind: Literal["attention_maps"]
    weight: Weight = 1.0

    def build(self, student: TercetConfig, teacher: TercetConfig) -> AttentionMapLoss:
        """Build the loss."""
        require_comparable_maps(student, teacher)
        return AttentionMapLoss(self.weight)


@dataclass(frozen=True)
class RelationsRecipe(BaseLossRecipe):
    """Match the self-attention relations of queries, keys and values in one layer (Wang et al., 2021)."""

    kind: Literal["relations"]
    weight: Weight = 1.0
    heads: Positive | None = None
    """Number of relation heads that the vectors are split into; the teacher's attention heads by default."""
    teacher_layer: int = -1
    """Index of the teacher's layer, from the end if negative; the student's layer is its last."""

    def build(self, student: TercetConfig, teacher: TercetConfig) -> RelationLoss:
        """Build the loss."""
        heads = self.heads or teacher.num_attention_heads
        require_divisor(heads, student, teacher)
        require_layer(self.teacher_layer, min(depths_of(teacher)))
        return RelationLoss(self.weight, heads, self.teacher_layer)


LossRecipe = Annotated[
    SoftTargetsRecipe
    | ReverseKLRecipe
    | GeneralizedDivergenceRecipe
    | LogitMSERecipe
    | CosineRecipe
    | HiddenStatesRecipe
    | AttentionMapsRecipe
    | RelationsRecipe,
    Field(discriminator="kind"),
]
"""Any of them; `kind` says which."""

PUBLISHED: tuple[LossRecipe, ...] = (
    SoftTargetsRecipe("soft_targets", weight=5.0, temperature=2.0),
    CosineRecipe("cosine", weight=1.0),
)
"""DistilBERT's, beside its masked language modeling of weight 2 (Sanh et al., 2019, section 3, and their
code)."""


def build_losses(
    recipes: Sequence[LossRecipe], student: TercetConfig, teacher: TercetConfig
) -> list[DistillationLoss]:
    """Build losses for two models.

    Raises:
        ValueError: A loss is there twice, or cannot compare models of these sizes.
    """
    kinds = sorted(recipe.kind for recipe in recipes)
    if twice := [kind for kind, other in pairwise(kinds) if kind == other]:
        raise ValueError(f"general.losses has {twice[0]} twice: list each kind once")
    return [recipe.build(student, teacher) for recipe in recipes]


def require_one_width(name: str, student: TercetConfig, teacher: TercetConfig) -> None:
    """Raise a `ValueError` if two models differ in width."""
    if student.hidden_size != teacher.hidden_size:
        raise ValueError(
            f"{name} compares states of one width, but the student's have {student.hidden_size} numbers "
            f"and the teacher's {teacher.hidden_size}: choose hidden_states of all layers, which has a "
            f"learned projection"
        )


def require_comparable_maps(student: TercetConfig, teacher: TercetConfig) -> None:
    """Raise a `ValueError` if two models differ in their heads of attention, or do not read whole texts."""
    for own, theirs in zip(stack_configs(student), stack_configs(teacher), strict=True):
        others = {*(own.layer_types or []), *(theirs.layer_types or [])} - {"full_attention"}
        if others:
            raise ValueError(
                f"attention_maps needs full attention, but there are layers of {', '.join(sorted(others))}: "
                "choose hidden_states"
            )
        if own.num_attention_heads != theirs.num_attention_heads:
            raise ValueError(
                f"attention_maps needs equal numbers of heads, but the student has "
                f"{own.num_attention_heads} and "
                f"the teacher {theirs.num_attention_heads}: choose relations, which does not need equal "
                f"numbers of heads"
            )


def require_divisor(heads: int, student: TercetConfig, teacher: TercetConfig) -> None:
    """Raise a `ValueError` if the vectors of a model cannot be cut into so many parts."""
    for role, config in (("student", student), ("teacher", teacher)):
        for width in widths_of_vectors(config):
            if width % heads:
                raise ValueError(
                    f"relations.heads is {heads}, but the {role}'s vectors of {width} numbers cannot be "
                    f"split into this many equal parts: choose a divisor"
                )


def widths_of_vectors(config: TercetConfig) -> list[int]:
    """Count the numbers in a token's joined queries, and in its joined keys and values, in each stack."""
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


def require_layer(layer: int, depth: int) -> None:
    """Raise a `ValueError` if a teacher of so many layers has no such layer."""
    if not -depth <= layer < depth:
        raise ValueError(
            f"relations.teacher_layer is {layer}, but the teacher has {depth} layers: choose 0 to {depth - 1}"
        )


def depths_of(config: TercetConfig) -> tuple[int, ...]:
    """Count the layers of each stack."""
    if isinstance(config, TercetSeq2SeqConfig):
        return config.num_hidden_layers, config.decoder_num_hidden_layers or config.num_hidden_layers
    return (config.num_hidden_layers,)


def required_projections(
    losses: Sequence[DistillationLoss], student: TercetConfig, teacher: TercetConfig
) -> list[str]:
    """Name the projections that losses need to compare states of different widths."""
    compares = any(isinstance(loss, HiddenStateLoss) for loss in losses)
    return ["layers", "embeddings"] if compares and student.hidden_size != teacher.hidden_size else []


def require_cached(losses: Sequence[DistillationLoss], *, is_complete: bool) -> None:
    """Raise a `ValueError` if a cached teacher cannot give what a loss compares."""
    for loss in losses:
        if (reason := loss.refusal(is_complete=is_complete)) is not None:
            raise ValueError(f"general.cache: {reason}; leave cache out, or the loss")
