"""What a student can learn from a teacher, as a recipe says it: one part of a recipe for each signal.

kind                    what is compared                                      narrower student  cached teacher
soft_targets            what both expect at each target, at a temperature     yes                yes
reverse_kl              the same, from the student's side                     yes                of full width
generalized_divergence  between the two                                       yes                of full width
logit_mse               logits at each target                                 yes                no
cosine                  directions of the last hidden states                  no                 yes
hidden_states           hidden states of all layers, or of the last           projected          the last
attention_maps          scores of attention before the softmax                of as many heads   no
relations               queries, keys and values among themselves             yes                no
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ..objectives.base_recipe import Share
from ..training.recipe import Positive

Weight = Annotated[float, Field(gt=0)]
"""What a term counts in the loss; a signal that shall not count is left out."""

Temperature = Annotated[float, Field(gt=0)]
"""What logits are divided by before the softmax: above 1, unlikely tokens count more."""


@dataclass(frozen=True)
class SoftTargetsRecipe:
    """Match the teacher's distribution (Hinton et al., 2015; Sanh et al., 2019)."""

    kind: Literal["soft_targets"]
    weight: Weight = 5.0
    temperature: Temperature = 2.0
    """Of both distributions."""


@dataclass(frozen=True)
class ReverseKLRecipe:
    """Stay where the teacher expects something, instead of covering all it expects (Gu et al., 2024)."""

    kind: Literal["reverse_kl"]
    weight: Weight = 1.0
    temperature: Temperature = 1.0
    """Of both distributions."""


@dataclass(frozen=True)
class GeneralizedDivergenceRecipe:
    """Between both (Agarwal et al., 2024): a Jensen-Shannon divergence that leans to one of them."""

    kind: Literal["generalized_divergence"]
    weight: Weight = 1.0
    beta: Share = 0.5
    """Share of the teacher in the mixture; at 0 it is the divergence of soft targets, at 1 reverse KL."""
    temperature: Temperature = 1.0
    """Of both distributions."""


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
    """Whether what every layer makes, and what the first one reads, is compared, or the end alone."""


@dataclass(frozen=True)
class AttentionMapsRecipe:
    """Match the scores of attention of all layers (Jiao et al., 2020)."""

    kind: Literal["attention_maps"]
    weight: Weight = 1.0


@dataclass(frozen=True)
class RelationsRecipe:
    """Match how the queries, keys and values of a layer relate to each other (Wang et al., 2021)."""

    kind: Literal["relations"]
    weight: Weight = 1.0
    heads: Positive | None = None
    """Parts that vectors are cut into, whatever the models' heads; the teacher's heads if left out."""
    teacher_layer: int = -1
    """Layer of the teacher, counted from 0, or from the end if negative; of the student it is the last."""


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
