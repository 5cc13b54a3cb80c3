"""The losses between student and teacher in a recipe (`general.signals`), one dataclass for each.

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

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ..objectives.base_recipe import Share
from ..training.recipe import Positive

Weight = Annotated[float, Field(gt=0)]
"""Weight of a term in the loss; leave a loss out instead of setting its weight to 0."""

Temperature = Annotated[float, Field(gt=0)]
"""Divisor of the logits before the softmax: above 1, unlikely tokens have more weight."""


@dataclass(frozen=True)
class SoftTargetsRecipe:
    """Match the teacher's distribution (Hinton et al., 2015; Sanh et al., 2019)."""

    kind: Literal["soft_targets"]
    weight: Weight = 5.0
    temperature: Temperature = 2.0
    """Temperature of both distributions."""


@dataclass(frozen=True)
class ReverseKLRecipe:
    """Reverse KL divergence: mode-seeking instead of mode-covering (Gu et al., 2024)."""

    kind: Literal["reverse_kl"]
    weight: Weight = 1.0
    temperature: Temperature = 1.0
    """Temperature of both distributions."""


@dataclass(frozen=True)
class GeneralizedDivergenceRecipe:
    """Generalized Jensen-Shannon divergence, between forward and reverse KL (Agarwal et al., 2024)."""

    kind: Literal["generalized_divergence"]
    weight: Weight = 1.0
    beta: Share = 0.5
    """Share of the teacher in the mixture; at 0 it is the divergence of soft targets, at 1 reverse KL."""
    temperature: Temperature = 1.0
    """Temperature of both distributions."""


@dataclass(frozen=True)
class LogitMSERecipe:
    """Match logits (Ba and Caruana, 2014)."""

    kind: Literal["logit_mse"]
    weight: Weight = 1.0


@dataclass(frozen=True)
class CosineRecipe:
    """Match the directions of the last hidden states (Sanh et al., 2019)."""

    kind: Literal["cosine"]
    weight: Weight = 1.0


@dataclass(frozen=True)
class HiddenStatesRecipe:
    """Match hidden states, of a narrower student through a learned projection (Jiao et al., 2020)."""

    kind: Literal["hidden_states"]
    weight: Weight = 1.0
    layers: Literal["all", "last"] = "all"
    """`all`: the embeddings and the output of every layer; `last`: the output of the last layer."""


@dataclass(frozen=True)
class AttentionMapsRecipe:
    """Match the attention scores of all layers (Jiao et al., 2020)."""

    kind: Literal["attention_maps"]
    weight: Weight = 1.0


@dataclass(frozen=True)
class RelationsRecipe:
    """Match the self-attention relations of queries, keys and values in one layer (Wang et al., 2021)."""

    kind: Literal["relations"]
    weight: Weight = 1.0
    heads: Positive | None = None
    """Number of relation heads that the vectors are split into; the teacher's attention heads by default."""
    teacher_layer: int = -1
    """Index of the teacher's layer, from the end if negative; the student's layer is its last."""


SignalRecipe = Annotated[
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

PUBLISHED: tuple[SignalRecipe, ...] = (
    SoftTargetsRecipe("soft_targets", weight=5.0, temperature=2.0),
    CosineRecipe("cosine", weight=1.0),
)
"""DistilBERT's, beside its masked language modeling of weight 2 (Sanh et al., 2019, section 3, and their
code)."""
