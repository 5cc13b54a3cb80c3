"""A mixture of objectives in one run: each has its share of the tokens and of the loss.

    objective:
      kind: mixture
      objectives:
        - {share: 0.7, objective: {kind: masked_language_modeling, mlm_probability: 0.3}}
        - {share: 0.3, objective: {kind: masked_language_modeling_with_next_sentence}}

All objectives train the same model: the same member, with the head that serves all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ...data.steps.examples import ExampleSource
from ...data.tokenizers.tokenizer import Template
from ...modeling import NeuralPreTrainedModel, TercetEncoderForMaskedLM, TercetEncoderForPreTraining
from ...training.mixture import MixedObjective, MixedSource, unused
from .hybrid_language_modeling import HybridLanguageModelingRecipe
from .recipes import BaseObjectiveRecipe, Corpus, FullSequence, ObjectiveContext, SingleObjectiveRecipe

SERVES: dict[type[NeuralPreTrainedModel], tuple[type[NeuralPreTrainedModel], ...]] = {
    TercetEncoderForPreTraining: (TercetEncoderForMaskedLM,)
}
"""Models that learn the objectives of other classes, too, because they have their heads."""


@dataclass(frozen=True)
class MixturePartRecipe:
    """One objective of a mixture."""

    objective: SingleObjectiveRecipe
    """The objective."""
    share: Annotated[float, Field(gt=0)]
    """Its share of the tokens and of the loss, relative to those of the others."""


@dataclass(frozen=True)
class MixtureRecipe(BaseObjectiveRecipe):
    """Learn several objectives in one run, each with its share of the tokens."""

    kind: Literal["mixture"]
    """Which objective this is."""
    objectives: tuple[MixturePartRecipe, ...]
    """The objectives and their shares."""

    def __post_init__(self) -> None:
        self.require_one_model()

    @property
    def recipes(self) -> list[BaseObjectiveRecipe]:
        return [part.objective for part in self.objectives]

    @property
    def shares(self) -> list[float]:
        """The shares, which sum to 1."""
        total = sum(part.share for part in self.objectives)
        return [part.share / total for part in self.objectives]

    @property
    def model_class(self) -> type[NeuralPreTrainedModel]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.require_one_model()

    @property
    def other_model_classes(self) -> Sequence[type[NeuralPreTrainedModel]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        first, *others = (recipe.other_model_classes for recipe in self.recipes)
        return [known for known in first if all(known in classes for classes in others)]

    @property
    def template(self) -> Template:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.recipes[0].template

    @property
    def num_sentinels(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(recipe.num_sentinels for recipe in self.recipes)

    @property
    def special_tokens(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(dict.fromkeys(name for recipe in self.recipes for name in recipe.special_tokens))

    @property
    def reads_pairs(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(recipe.reads_pairs for recipe in self.recipes)

    def require_one_model(self) -> type[NeuralPreTrainedModel]:
        """Find the model that learns all objectives."""
        if len(self.objectives) < 2:
            raise ValueError(f"objectives has {len(self.objectives)} entries: give two or more")
        for recipe in self.recipes:
            if isinstance(recipe, HybridLanguageModelingRecipe):
                raise ValueError(
                    f"{recipe.kind} is a mixture itself, so that it cannot be part of another one: name "
                    "objectives of one kind, or train it alone"
                )
            if type(recipe).build_model is not BaseObjectiveRecipe.build_model:
                raise ValueError(
                    f"{recipe.kind} trains several models, so that it cannot be part of a mixture: remove it "
                    "from objective.objectives"
                )
        needed = {recipe.model_class: recipe.kind for recipe in self.recipes}
        if len({recipe.reads_pairs for recipe in self.recipes}) > 1:
            raise ValueError(
                f"objectives mix {' and '.join(needed.values())}, of which only some read pairs of "
                "texts: keep those that do, or the others"
            )
        for model_class in needed:
            if all(other == model_class or other in SERVES.get(model_class, ()) for other in needed):
                return model_class
        names = " and ".join(f"{kind} ({found.__name__})" for found, kind in needed.items())
        raise ValueError(f"objectives train different models, {names}: choose objectives of one model")

    def build(self, context: ObjectiveContext) -> MixedObjective:
        return MixedObjective([recipe.build(context) for recipe in self.recipes], self.shares)

    def examples(self, corpus: Corpus, context: ObjectiveContext) -> MixedSource:
        sources = [recipe.examples(corpus, context) for recipe in self.recipes]
        return MixedSource(sources, self.shares, context.seed, whole=context.is_held_out)

    def full_sequence(self, sequence_length: int) -> FullSequence:
        longest = [recipe.full_sequence(sequence_length) for recipe in self.recipes]

        def mean(name: str) -> float:
            values = (getattr(one, name) for one in longest)
            return sum(share * value for share, value in zip(self.shares, values, strict=True))

        return FullSequence(
            round(mean("read")),
            round(mean("written")),
            mean("targets"),
            mean("pairs"),
            passes=mean("passes"),
        )

    def count_bytes(self, corpus: Corpus, source: ExampleSource) -> dict[str, int]:
        assert isinstance(source, MixedSource)
        counts: dict[str, int] = {}
        for recipe, part in zip(self.recipes, source.sources, strict=True):
            for term, number in recipe.count_bytes(corpus, part).items():
                counts[unused(term, counts)] = number
        return counts
