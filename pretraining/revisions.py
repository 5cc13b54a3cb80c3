"""The intermediate models of a pretraining run, which may go to the Hub.

OUTPUT/revisions/step-1000/    what OUTPUT/model/ will hold: weights, configuration, tokenizer, code, recipe
                               evaluation.json, texts.json: for the model card
"""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from torch import Tensor

from ..data.cache import cache_folder, key_of, made_once
from ..data.documents import Documents, require_unchanged
from ..data.files.atomic_writes import partial_path, publish_folder, removing_on_failure
from ..data.steps.examples import ExampleSource, left_out_of
from ..data.steps.exchange import main_first
from ..data.steps.windows import tokens_of_pass
from ..training.checkpoints.revisions import BABYLM, RevisionSeries
from ..training.devices.environment import environment_of
from ..training.learning import Session
from ..training.loop import Progress
from ..training.run_folder import EVALUATION, MODEL, REVISIONS, TEXTS
from ..training.tracking import as_json
from .finished import save_model, saved_models
from .prepared import Prepared


def hub() -> Any:
    """Return the module that pushes intermediate models; `tercet/registration.py` puts it in this place."""
    raise NotImplementedError("nothing pushes models where the package tercet is not imported")


@contextmanager
def keeping_revisions(session: Session, parts: Prepared, cache: str | None) -> Iterator[RevisionSeries]:
    """Give what keeps the intermediate models of a run, and push them while the run goes on.

    In the end, what is missing on the Hub is tried once more, and named if it stays missing; a run that is
    stopped does not wait for it. Every process calls this; counts of words are kept in the cache.
    """
    training, accelerator, pushes = session.recipe, session.accelerator, None
    assert training.revisions is not None
    if training.push_revisions is not None and accelerator.is_main_process:
        pushes = hub().BackgroundPush(session.folder, training.push_revisions)
        earlier = hub().not_pushed(session.folder, training.push_revisions)
        pushes.wake(earlier)

    def keep(
        name: str, weights: Mapping[str, Tensor], progress: Progress, scores: Mapping[str, float]
    ) -> None:
        about = {"weights": training.judged_kind, "scores": dict(scores)}
        if training.revisions == BABYLM:
            about["words"] = round(progress.words)
        about["trained_on"] = environment_of(parts.model, accelerator)
        folder = save_revision(session, parts, name, weights, progress.state_dict() | about)
        if pushes is not None:
            pushes.wake([folder])

    series = RevisionSeries(training.revisions, keep)
    if training.revisions == BABYLM:
        with main_first():
            find = partial(words_per_token, parts.text.texts["train"], cache=cache)
            stages = parts.data.stages
            series.words_per_token = [(stage.first_step, find(stage.steps.source)) for stage in stages]
    try:
        yield series
    except BaseException:
        if pushes is not None:
            pushes.tell_missing()
        raise
    if pushes is not None:
        pushes.finish()


def require_repository(session: Session) -> None:
    """Make sure, before a run begins, that the Hub takes its intermediate models; every process calls this.

    A Hub that does not answer is no reason not to begin: it may answer when the first model is there.
    """
    problem, repo = None, session.recipe.push_revisions
    assert repo is not None
    if session.accelerator.is_main_process:
        try:
            hub().open_repository(repo, is_new=not session.goes_on)
        except ValueError as error:
            problem = str(error)
        except ConnectionError as error:
            print(f"{error}; the run begins without it", file=sys.stderr, flush=True)
    problem = broadcast_object_list([problem])[0]
    if problem is not None:
        raise ValueError(f"training.push_revisions is {repo}, but {problem}")


def save_revision(
    session: Session,
    parts: Prepared,
    name: str,
    weights: Mapping[str, Tensor],
    about: dict[str, Any],
) -> Path:
    """Write an intermediate model, whole or not at all; one of that name is replaced."""
    folder = session.folder / REVISIONS / name
    partial, texts = partial_path(folder), session.folder / TEXTS
    with removing_on_failure(partial):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        model, own = saved_models(parts.model, parts.saved, weights)[MODEL]
        with_code = session.recipe.save_code
        save_model(partial, model, own, parts.tokenizer, session.folder, with_code=with_code)
        (partial / EVALUATION).write_text(json.dumps(as_json(about), indent=2) + "\n", encoding="utf-8")
        if texts.exists():
            shutil.copy(texts, partial)
        publish_folder(partial, folder)
    return folder


def words_per_token(documents: Sequence[Documents], source: ExampleSource, cache: str | Path | None) -> float:
    """Compute how many words of a text a token of its examples is.

    Words of documents that are in no example are not read. They are taken to have as many tokens as others.
    """
    left_out = sum(each.tokens / each.all_tokens for each in left_out_of(source.epoch(0)))
    return count_words(documents, cache) * (1 - left_out) / tokens_of_pass(source)


def count_words(documents: Sequence[Documents], cache: str | Path | None) -> int:
    """Count the words of a text, between white space, unless an earlier run has; the count is kept."""
    texts = [part.fingerprint() for part in documents]
    name = key_of("words", texts)

    def make(folder: Path) -> None:
        count = sum(len(text.split()) for part in documents for text in part)
        require_unchanged(documents, texts)
        (folder / "count").write_text(str(count), encoding="utf-8")

    folder = made_once(cache_folder(cache) / "words" / name, make)
    return int((folder / "count").read_text(encoding="utf-8"))
