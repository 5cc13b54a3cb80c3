"""The tokenizer of a pretraining run: loaded, trained on its text or given terms, and kept in its folder.

named, or trained on the text -> terms added -> cut to the model's positions -> kept in the run's folder
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from transformers import PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..data.cache import cache_folder, key_of, made_once
from ..data.documents import Documents, require_unchanged
from ..data.identities import contents_of
from ..data.tokenizers.tokenizer import fit_frame, load_tokenizer, train_tokenizer
from ..modeling.saved.length import most_positions
from ..modeling.saved.model_folder import keep_option, save_tokenizer
from ..training.checkpoints.checkpoint import CHECKPOINTS, latest
from ..training.run_folder import Run
from .model import FirstModel
from .objectives.recipes import BaseObjectiveRecipe
from .output import TOKENIZER
from .recipe import TokenizerRecipe

EDITION = 3
"""To be raised whenever the same text gives another tokenizer."""


MADE_OF = "made_of.txt"
"""Beside a run's tokenizer: what it was made of, as a hash."""


@dataclass(frozen=True)
class TokenizerSource:
    """Where the tokenizer of a run is from: a model's or another one that there is, or its own text."""

    options: TokenizerRecipe
    """Which one, or how it is trained, and which terms it gets."""
    name: str
    """What it is loaded from or trained on, for the screen."""
    named: PreTrainedTokenizerBase | None
    """The existing one, if the recipe names one, or a corpus was prepared by one."""
    is_of_model: bool
    """Whether it is that of the model with which the run begins."""
    documents: Sequence[Documents]
    """The training text."""
    objective: BaseObjectiveRecipe
    """What the tokenizer is for: which tokens it has to have, and what it puts around a text."""
    control_tokens: Sequence[str]
    """Further special tokens of one that is trained."""
    cache: str | None
    """Folder in which tokenizers that are made are kept."""

    @cached_property
    def terms(self) -> list[str]:
        """The terms that become one token each."""
        if self.options.add is None:
            return []
        from ..data.tokenizers.new_terms import read_terms

        return read_terms(self.options.add)

    @property
    def is_made(self) -> bool:
        """Whether the run makes a tokenizer, which its folder keeps."""
        return self.options.path is None or self.options.is_extended

    def load_or_train(self, model: FirstModel, kept: Path | None) -> PreTrainedTokenizerBase:
        """Load the tokenizer that the recipe names, or one that was made before (in `kept`), or make one."""
        name, named, is_extended = self.name, self.named, self.options.is_extended
        if kept is not None and (named is None or is_extended):
            name, named = str(kept), load_tokenizer(str(kept))
        else:
            if named is None:
                named = load_tokenizer(str(self.trained(most_positions(model.config))))
            if is_extended:
                from .added_terms import extended_tokenizer

                number, cache = self.options.add_learned, self.cache
                extended = extended_tokenizer(named, self.terms, number, self.documents, cache)
                named = load_tokenizer(str(extended))
            if self.named is not None:
                fit_frame(named, self.objective.template, name)
        fit_length(named, model.positions_with(named, is_own=self.is_of_model), name)
        return named

    def found(self, run: Run) -> Path | None:
        """Find the tokenizer that an earlier command made for a run; one that has begun keeps it anyway."""
        folder = run.folder / TOKENIZER
        if run.overwrite or not folder.exists():
            return None
        if not (folder / MADE_OF).exists() or latest(run.folder / CHECKPOINTS) is not None:
            return folder
        if (folder / MADE_OF).read_text(encoding="utf-8") != self.made_of:
            raise ValueError(
                f"{folder} was made of other text, or other terms, than the files of corpus.train and "
                "tokenizer.add hold now: make it anew with --overwrite, or choose another folder with "
                "output=..."
            )
        return folder

    def keep(self, run_folder: Path, tokenizer: PreTrainedTokenizerBase) -> Path:
        """Save a tokenizer that was made for a run in its folder, unless it is there; return where."""
        folder = run_folder / TOKENIZER

        def make(target: Path) -> None:
            save_tokenizer(tokenizer, target)
            (target / MADE_OF).write_text(self.made_of, encoding="utf-8")

        if self.is_made and not folder.exists():
            made_once(folder, make, "another folder with output=...")
        return folder

    @property
    def made_of(self) -> str:
        """Hash of what a run's tokenizer is made of: its text, if it learns from that, and terms."""
        documents = self.documents if self.named is None or self.options.add_learned else ()
        return key_of([contents_of(entry) for part in documents for entry in part.identify()], self.terms)

    def trained(self, longest: int | None) -> Path:
        """Train a tokenizer on the text, unless an earlier run has, and give its folder in the cache."""
        options = {
            "kind": self.options.kind,
            "vocab_size": self.options.vocab_size,
            "lowercase": self.options.lowercase,
            "sentinels": self.objective.num_sentinels,
            "special_tokens": (*self.objective.special_tokens, *self.control_tokens),
            "template": self.objective.template,
            "model_max_length": longest,
        }
        texts = [part.fingerprint() for part in self.documents]
        name = key_of(EDITION, options, texts)

        def make(folder: Path) -> None:
            save_tokenizer(train_tokenizer(Joined(self.documents), **options), folder)
            require_unchanged(self.documents, texts)

        return made_once(cache_folder(self.cache) / "tokenizers" / name, make)


def fit_length(tokenizer: PreTrainedTokenizerBase, longest: int | None, name: str) -> None:
    """Let a tokenizer cut texts to as many tokens as the model reads, and print what changes."""
    former = tokenizer.model_max_length
    if longest is None or former == longest:
        return
    keep_option(tokenizer, "model_max_length", longest)
    told = f"texts to {former:,} tokens" if former < VERY_LARGE_INTEGER else "no texts"
    print(
        f"{name}: the tokenizer cuts {told}; beside the model, it cuts them to its {longest:,} positions",
        file=sys.stderr,
        flush=True,
    )


class Joined:
    """Several documents' texts, one after another, as often as one likes."""

    def __init__(self, parts: Sequence[Documents]):
        self.parts = parts

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.parts)
