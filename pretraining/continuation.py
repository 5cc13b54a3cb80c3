"""A run that goes on from a trained model: what its model begins with, and what is said of that.

A model that gets another tokenizer keeps what it knows of tokens (`data/tokenizers/token_rows.py`). A stock
model is imported. The import lies in the cache, with its certificate, under the hash of what it was made of:
a run that is resumed, planned or verified finds it there.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Self, cast

from transformers import PreTrainedTokenizerBase

from ..configs.messages import quietly, shortened
from ..configs.recipe import read_recipe, recipe_folders
from ..data.cache import cache_folder, key_of, made_once
from ..data.documents import Documents, single_texts
from ..data.prepared import PreparedDocuments
from ..data.tokenizers.token_rows import keeps_ids, new_ids, rows_between
from ..data.tokenizers.tokenization import tokenized_corpus
from ..modeling import NeuralConfig, NeuralPreTrainedModel
from ..modeling.saved.checkpoint import Checkpoint, Opener
from ..modeling.saved.inheritance import TokenRows, inherit, inherit_writing
from ..modeling.saved.length import max_length, most_positions
from ..modeling.saved.model_folder import require_fit, save_tokenizer
from ..modeling.saved.saving import save_loadable
from ..training.evaluation import HeldOut
from .model import FirstModel, overridden
from .objectives.recipes import OBJECTIVES, BaseObjectiveRecipe, Trainable
from .recipe import CorpusRecipe, ModelRecipe

SMALLEST_RATE, ADVISED_RATE, LARGEST_RATE = 2e-5, 1e-4, 5e-4
"""Peak learning rates with which trained models are trained on. The README of BERT's code advises the first.
Gururangan et al. (2020) took the others: for a task's own text, and for a domain's, 2,048 texts a step."""

TOKENS, TOKENS_BEFORE = "tokens", "tokens_before"
"""Under these names it is told how many tokens the held-out text has, now and by the tokenizer before."""

EDITION_OF_IMPORTS = 3
"""To be raised whenever the same stock model gives another one of ours."""


@dataclass(frozen=True)
class ContinuedModel(FirstModel):
    """A trained model that goes on learning."""

    checkpoint: Checkpoint
    """The model that the recipe names."""
    ours: Checkpoint
    """The same, or its import if it is a stock model."""

    is_trained = True

    @classmethod
    def find(
        cls, model: ModelRecipe, objective: BaseObjectiveRecipe, corpus: CorpusRecipe, open_model: Opener
    ) -> Self:
        """Open a model that goes on, and import it if it is a stock model; see `first_model`."""
        assert model.path is not None
        tell_of_replaced(model)
        checkpoint = open_model(model.path)
        require_trainable(objective, checkpoint)
        ours, overrides = kept_import(checkpoint, corpus.cache), model.applied_overrides
        origin, values = f"model.path {model.path}", ours.config.to_dict()
        config = overridden(values, origin, overrides, objective, corpus.sequence_length)
        return cls(model.path, objective, config, overrides, checkpoint, ours)

    @property
    def former_tokenizer(self) -> PreTrainedTokenizerBase | None:
        return self.checkpoint.tokenizer

    @property
    def room(self) -> int:
        return self.config.vocab_size

    def is_numbered_anew(self, tokenizer: PreTrainedTokenizerBase) -> bool:
        former = self.former_tokenizer
        return former is not None and not keeps_ids(former, tokenizer)

    def positions_with(self, tokenizer: PreTrainedTokenizerBase, *, is_own: bool) -> int | None:
        # a sentence model may read fewer than it has positions for
        positions = most_positions(self.config)
        if positions is None or not is_own or "max_position_embeddings" in self.overrides:
            return positions
        return max_length(self.config, tokenizer.model_max_length)

    def build(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> Trainable:
        model, source = super().build(tokenizer, seed), self.ours.ours()
        former, path = self.former_tokenizer, self.name
        rows = rows_of_tokens(former, tokenizer, source.config.vocab_size, self.config.vocab_size)
        renumber = None if former is None or rows is None else partial(new_ids, former, tokenizer)
        tell_of_fresh(path, inherit_parts(model, self.objective.inheriting, source, rows, renumber))
        tell_of_new_tokens(path, rows, source.config.vocab_size, self.config.vocab_size)
        return model

    def tell_of_rate(self, rate: float | None) -> None:
        if rate is None or rate <= LARGEST_RATE:
            return
        print(
            f"training.optimizer.learning_rate is {rate:g}, as for random weights, which may undo what "
            f"{self.name} has learned: begin with {ADVISED_RATE:g} (from {SMALLEST_RATE:g} to "
            f"{LARGEST_RATE:g}: Devlin et al., 2019, Gururangan et al., 2020), and compare the scores before "
            "the first step with later ones",
            file=sys.stderr,
            flush=True,
        )


def tell_of_replaced(model: ModelRecipe) -> None:
    """Show on the screen that a model takes the place of the recipe's preset."""
    if model.preset is None:
        return
    names = f" and its overrides ({', '.join(model.overrides)})" if model.overrides else ""
    remedy = "; for overrides of the model, set model.preset=null" if model.overrides else ""
    print(f"{model.path} replaces the preset {model.preset}{names}{remedy}", file=sys.stderr, flush=True)


def require_trainable(objective: BaseObjectiveRecipe, checkpoint: Checkpoint) -> None:
    """Raise a `ValueError` if the objective does not train the model that is to go on; it is not imported."""
    from ..modeling.stock.architectures import architecture_of

    path, own_type = checkpoint.name, checkpoint.config.model_type
    is_ours = checkpoint.is_ours
    member = own_type if is_ours else architecture_of(checkpoint.config).config.model_type
    trained = members_of(objective.model_classes)
    if member not in trained:
        known_as = f"a {member}" if is_ours else f"a {own_type}, with Tercet a {member}"
        fitting = [
            kind
            for kind, known in OBJECTIVES.items()
            if member in members_of([known.model_class, *known.other_model_classes])
        ]
        raise ValueError(
            f"model.path {path} is {known_as}, but {objective.kind} trains a "
            f"{' or a '.join(trained)}: {to_adapt(path, fitting)}set objective.kind to "
            f"{' or '.join(fitting)}, or name another model"
        )


def to_adapt(path: str, kinds: Sequence[str]) -> str:
    """Name the shipped recipe that goes on with a model by one of some objectives, if there is one."""
    for name, folder in sorted(recipe_folders().items()):
        data = read_recipe(name)[1] if folder == "pretraining" else {}
        if data.get("model", {}).get("path") and data["objective"]["kind"] in kinds:
            return f"run `tercet pretrain {name} model.path={path}`, "
    return ""


def members_of(models: Sequence[type[NeuralPreTrainedModel]]) -> list[str]:
    return [cast(type[NeuralConfig], model.config_class).model_type for model in models]


def kept_import(checkpoint: Checkpoint, cache: str | Path | None = None) -> Checkpoint:
    """Return a model of ours as it is, or the import of a stock model in the cache, and tell of a new one."""
    if checkpoint.is_ours:
        return checkpoint
    kept = cache_folder(cache) / "imported" / key_of(EDITION_OF_IMPORTS, checkpoint.hash)
    if not kept.exists():
        made_once(kept, lambda target: import_into(target, checkpoint))
        print(
            f"{checkpoint.name}: imported from {checkpoint.config.model_type}, in {kept}; certificate.json "
            "there says how close the logits are",
            file=sys.stderr,
            flush=True,
        )
    return Checkpoint.open(str(kept))


def import_into(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the model of ours that a stock model is, its tokenizer and the certificate into a folder."""
    from ..modeling.stock.certificate import certify
    from ..modeling.stock.models import imported, load_stock

    stock, tokenizer = load_stock(checkpoint), checkpoint.tokenizer
    require_fit(tokenizer, stock.config)
    ours = imported(stock, checkpoint)
    certificate = certify(stock, ours, tokenizer)
    if not certificate.holds:
        raise ValueError(certificate.verdict())
    print(certificate.verdict(), file=sys.stderr, flush=True)
    with quietly():
        save_loadable(ours, folder)
        if tokenizer is not None:
            save_tokenizer(tokenizer, folder)
    certificate.save(folder)


def rows_of_tokens(
    former: PreTrainedTokenizerBase | None,
    tokenizer: PreTrainedTokenizerBase,
    num_rows: int,
    num_new_rows: int,
) -> TokenRows | None:
    """Find what each id of a tokenizer begins with, if it is another tokenizer than that of the model."""
    if former is None or not former.is_fast or former.get_vocab() == tokenizer.get_vocab():
        return None
    return rows_between(former, tokenizer, num_rows, num_new_rows)


def inherit_parts(
    model: Trainable,
    inheriting: Sequence[str],
    source: NeuralPreTrainedModel,
    rows: TokenRows | None = None,
    renumber: Callable[[Iterable[int]], Mapping[int, int]] | None = None,
) -> list[str]:
    """Give parts of what is trained the weights of a model; name what it does not have."""
    fresh = {id(parameter): name for name, parameter in model.named_parameters()}
    for part in map(model.get_submodule, inheriting):
        assert isinstance(part, NeuralPreTrainedModel)
        missing = inherit(part, source, rows=rows)
        inherit_writing(part, source, renumber)
        for name, parameter in part.named_parameters():
            if name not in missing:
                fresh.pop(id(parameter), None)
    return sorted(fresh.values())


def tell_of_fresh(path: str, fresh: list[str]) -> None:
    """Warn of parameters that a model brings no weights for."""
    if fresh:
        warnings.warn(
            f"{path} has no weights for {shortened(fresh)}: they are initialized randomly", stacklevel=2
        )


def tell_of_new_tokens(path: str, rows: TokenRows | None, num_old: int, num_new: int) -> None:
    """Show on the screen that a model has got another vocabulary, or a larger one."""
    if rows is not None:
        print(
            f"{path}: the vocabulary changes from {num_old:,} to {num_new:,} rows: {rows.num_kept:,} are "
            f"those of one token, {rows.num_joined:,} begin with the mean of the pieces that the model's "
            f"tokenizer cuts their text into, {rows.num_unknown:,} with the mean of all tokens",
            file=sys.stderr,
            flush=True,
        )
    elif num_new > num_old:
        print(
            f"{path}: the vocabulary grows from {num_old:,} to {num_new:,} tokens; the new ones begin with "
            "the mean of the old ones",
            file=sys.stderr,
            flush=True,
        )


def with_tokens_before(
    held_out: HeldOut,
    documents: Sequence[Documents],
    tokenizer: PreTrainedTokenizerBase,
    former: PreTrainedTokenizerBase,
    cache: str | None,
) -> HeldOut:
    """Count the tokens of a held-out text by the tokenizer that a run changes, too, and tell of it."""
    if not former.is_fast or former.get_vocab() == tokenizer.get_vocab():
        return held_out
    texts = [*chain.from_iterable(map(single_texts, documents))]
    if any(isinstance(each, PreparedDocuments) for each in texts):  # no text to count anew
        return held_out
    now, earlier = (
        sum(len(tokenized_corpus(each, one, cache).tokens) for each in texts) for one in (tokenizer, former)
    )
    held_out = replace(held_out, about={**held_out.about, TOKENS: now, TOKENS_BEFORE: earlier})
    print(told_of_tokens(held_out.about), file=sys.stderr, flush=True)
    return held_out


def told_of_tokens(about: Mapping[str, float]) -> str | None:
    """Say how many tokens the held-out text has become by a change of the tokenizer, if there was one."""
    if TOKENS_BEFORE not in about:
        return None
    now, earlier = int(about[TOKENS]), int(about[TOKENS_BEFORE])
    return (
        f"the held-out text has {now:,} tokens, and had {earlier:,} by the tokenizer before "
        f"({now / earlier - 1:+.1%})"
    )
