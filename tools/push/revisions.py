"""Intermediate models on the Hub: each is a revision of one repository, as `from_pretrained` takes them.

    OUTPUT/revisions/chck_7M/   ->   from_pretrained("me/model", revision="chck_7M")

`pushed.json` in the folder of each says to which repositories it has been pushed. While a run goes on, its
models are sent by a thread: what the Hub refuses, or a network that is down, costs the run a line, and all
that is missing is tried again when the next model is there, and in the end. The run itself makes sure that
they are whole, before: while `from_pretrained` loads a model, `PreTrainedModel.tie_weights` does nothing for
the whole process, and two loads at once can leave it so.
"""

import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from tqdm import tqdm

from ...configs.documents import read_facts
from ...configs.messages import first_line, shortened
from ...data.files.atomic_writes import replace_text
from ...modeling.saved.model_folder import CONFIG
from ...training.run_folder import EVALUATION, REVISIONS
from .publication import Publication, prepare
from .push import branches_of, make_repository, push

PUSHED = "pushed.json"
"""In the folder of an intermediate model: repository -> address of the commit."""

OF_A_SERIES = re.compile(r"step-\d+|chck_\d+M")
"""Names of intermediate models."""


def revisions_of(folder: Path) -> list[Path]:
    """List the intermediate models of a run, in the order in which they were learned."""
    found = [file.parent for file in (folder / REVISIONS).glob(f"[!.]*/{CONFIG}")]
    return sorted(
        found, key=lambda path: (read_facts(path / EVALUATION).get("step", 0), len(path.name), path.name)
    )


def not_pushed(folder: Path, repo: str) -> list[Path]:
    """List the intermediate models of a run that were not pushed to a repository."""
    return [path for path in revisions_of(folder) if repo not in read_facts(path / PUSHED)]


def missing_revisions(folder: Path, repo: str) -> list[Path]:
    """List the intermediate models of a run that a repository lacks, or has not got from here.

    Warns:
        UserWarning: The repository has some, and none from here.
    """
    models, missing, there = revisions_of(folder), not_pushed(folder, repo), branches_of(repo)
    if models == missing:
        warn_of_others(repo, there)
    return [model for model in models if model in missing or model.name not in there]


def open_repository(repo: str, *, is_new: bool) -> None:
    """Make a repository for the intermediate models of a run, unless there is one.

    Warns:
        UserWarning: The run is new, and the repository has some already.
    """
    make_repository(repo)
    if is_new:
        warn_of_others(repo, branches_of(repo))


def warn_of_others(repo: str, branches: Iterable[str]) -> None:
    """Warn, before a run's first push, of branches of a repository that are called as intermediate models."""
    if others := sorted(filter(OF_A_SERIES.fullmatch, branches), key=lambda name: (len(name), name)):
        warnings.warn(
            f"{repo} has {shortened(others)} already, which this run did not push: those of the same names "
            "are replaced, and the others stay; choose another repository, or delete them there",
            stacklevel=2,
        )


def push_revisions(
    models: list[Path], repo: str, *, private: bool = False, message: str | None = None
) -> Iterator[str]:
    """Push intermediate models, each as a revision of its name, and yield the addresses of the commits."""
    refused: ValueError | None = None
    for model in models:
        try:
            publication = prepare(model, repo, revision=model.name)
            yield push_revision(publication, private=private, message=message)
        except ValueError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def push_revision(publication: Publication, *, private: bool = False, message: str | None = None) -> str:
    """Push an intermediate model as a revision of its name, and return the address of the commit."""
    record, name = publication.folder / PUSHED, publication.folder.name
    address = push(publication, private=private, revision=name, message=message)
    replace_text(record, json.dumps(read_facts(record) | {publication.repo: address}, indent=2) + "\n")
    return address


class BackgroundPush:
    """Pushes a run's intermediate models to a repository while the run goes on."""

    def __init__(self, folder: Path, repo: str):
        self.folder, self.repo = folder, repo
        self.prepared: dict[Path, Publication] = {}
        self.news: SimpleQueue[bool] = SimpleQueue()
        self.thread = Thread(target=self._work, name="push", daemon=True)
        self.thread.start()

    def wake(self, models: Iterable[Path]) -> None:
        """Make sure that models are whole, and let them, and what is missing, be pushed, soon."""
        for model in models:
            try:
                self.prepared[model] = prepare(model, self.repo, revision=model.name)
            except Exception as error:  # one that is damaged: the run goes on, and pushes the others
                tell(f"{model.name} cannot be pushed to {self.repo}: {first_line(error)}")
        self.news.put(True)

    def finish(self) -> None:
        """Try for a last time to push what is missing, wait for it, and say what is missing then."""
        if missing := not_pushed(self.folder, self.repo):
            tell(f"waiting until {shortened(path.name for path in missing)} is pushed to {self.repo}")
        self.news.put(False)
        self.thread.join()
        self.tell_missing()

    def tell_missing(self) -> None:
        if missing := not_pushed(self.folder, self.repo):
            tell(
                f"not pushed to {self.repo}: {shortened(path.name for path in missing)}; "
                f"`tercet push {self.folder} {self.repo} --all-revisions` pushes what is missing"
            )

    def _work(self) -> None:
        goes_on = True
        while goes_on:
            goes_on = self.news.get()
            while not self.news.empty():  # one attempt for all that has come meanwhile
                goes_on = self.news.get() and goes_on
            said: set[str] = set()
            for model in filter(self.prepared.__contains__, not_pushed(self.folder, self.repo)):
                try:
                    tell(f"pushed {push_revision(self.prepared[model])}")
                except Exception as error:  # whatever a network and a Hub may do: the run goes on
                    again = "is tried again with the next one" if goes_on else "was the last attempt"
                    if (reason := first_line(error)) not in said:
                        tell(f"the push to {self.repo} failed, and {again}: {reason}")
                    said.add(reason)
                    if isinstance(error, ConnectionError):
                        break


def tell(line: str) -> None:
    """Print a line, above progress bars if some are shown."""
    tqdm.write(line, file=sys.stderr)
