"""Train for an hour under random kills, and see that nothing comes of it.

    python tests/soak/soak.py                  one hour
    python tests/soak/soak.py --minutes 4

One recipe is run through `tercet pretrain` and left alone, for a third of the time. Then it is run again and
again, killed at random moments by SIGKILL or SIGTERM, and resumed until it is done. Log, final weights and
optimizer must be equal bit for bit every time, and the resident memory of the run that was left alone must be
flat. The exit code is 1 if any of it fails.
"""

import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file

from tercet.training.checkpoints.checkpoint import CHECKPOINTS, latest, read_state
from tercet.training.tracking import LOG, Record, read_log

RECIPE: dict[str, Any] = {
    "model": {
        "preset": "encoder-tiny",
        "overrides": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    },
    "tokenizer": {"kind": "wordpiece", "vocab_size": 2000},
    "corpus": {"sequence_length": 64},
    "objective": {"kind": "masked_language_modeling_with_next_sentence"},
    # Neither records nor evaluations come in the rhythm of checkpoints.
    "training": {
        "tokens_per_step": 512,
        "checkpoint_every": 25,
        "evaluate_every": 70,
        "log_every": 3,
        "num_workers": 1,
    },
}
"""What is trained: small, so that there are many steps and checkpoints to be disturbed."""

TRIAL_STEPS = 200
"""Steps of a first run, by whose speed the others are given theirs."""

SHARE = 1 / 3
"""Part of the time for the run that is left alone."""

KILLS = 60
"""How many kills fit into the whole time, if it is long."""

SHORTEST_MEAN_LIFE = 10.0
"""Seconds between a run's first step and its kill at least, on average."""

FLAT = 1.0
"""Growth of resident memory per 1,000 steps, in MiB, that is taken for none."""

SETTLED = 1000
"""Steps after which memory can be judged: the kept heap and the kept products have their size by then."""

OF_THE_MACHINE = {"seconds", "tokens_per_second", "memory_mib", "utilization"}
"""What two runs need not have in common."""

SECONDS_BETWEEN_SAMPLES = 0.2

GRACE = 120.0
"""Seconds in which a run must end after SIGTERM."""

TAIL = 4096
"""Bytes at the end of a log that hold its last record."""

LATEST_FIRST_KILL = 0.75
"""Share of a run's steps in which its first kill falls: before its end, whatever else the machine does."""

STATUSES = (0, 130, -signal.SIGKILL, -signal.SIGTERM)
"""How a run may end: done, by a signal that it heard, by SIGKILL, or by SIGTERM before it listened."""


@dataclass
class Life:
    """A process from its start to its end."""

    began_at_step: int
    """The step of the checkpoint that it began with."""
    status: int = 0
    """Its exit status, or minus the signal that ended it."""
    seconds: float = 0.0
    """How long it lived."""
    samples: list[tuple[float, int, float]] = field(default_factory=list)
    """Seconds since the start, the last step in the log, and MiB of resident memory."""

    @property
    def last_step(self) -> int:
        """The last step that was seen in the log."""
        return self.samples[-1][1] if self.samples else self.began_at_step

    @property
    def seconds_to_begin(self) -> float:
        """Seconds until its first step was in the log; its whole life if there was none."""
        return next((at for at, step, _ in self.samples if step > self.began_at_step), self.seconds)


@dataclass(frozen=True)
class Run:
    """A recipe and where it is run."""

    recipe: Path
    folder: Path
    steps: int

    def live(
        self, is_over: Callable[[Life], bool] = lambda life: False, number: int = signal.SIGKILL
    ) -> Life:
        """Start or resume it, and wait for its end, or send a signal once its life `is_over`.

        Raises:
            RuntimeError: It ended otherwise than by itself or by the signal.
            TimeoutExpired: The signal did not end it.
        """
        life, start = Life(self.saved_step()), time.monotonic()
        command = [sys.executable, "-m", "tercet", "pretrain", str(self.recipe), "--resume"]
        command += [f"output={self.folder}", f"training.steps={self.steps}"]
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_suffix(".stderr").open("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            try:
                while process.poll() is None:
                    life.seconds = time.monotonic() - start
                    life.samples.append((life.seconds, self.logged_step(), resident_memory(process.pid)))
                    if is_over(life):
                        process.send_signal(number)
                        process.wait(GRACE)
                    else:
                        time.sleep(SECONDS_BETWEEN_SAMPLES)
            finally:
                process.kill()
            life.status = process.returncode
            errors.seek(0)
            if life.status not in STATUSES:
                raise RuntimeError(f"{self.folder.name} ended with {life.status}: {errors.read()[-TAIL:]}")
        return life

    def live_dangerously(self, mean_life: float, ends: float, draw: random.Random) -> Iterator[Life]:
        """Resume it until it is done; kill it at a random step, and then at random moments.

        The first kill is bound to a step, not to a time: however fast the machine becomes, it comes before
        the end. Up to the time `ends`, further lives have random lengths of such a mean.
        """
        first = draw.uniform(0, LATEST_FIRST_KILL * self.steps)
        life = self.live(lambda life: life.last_step > first, _any_signal(draw))
        yield life
        while life.status != 0:
            longest = draw.expovariate(1 / mean_life) if time.monotonic() < ends else math.inf
            life = self.live(lambda life, longest=longest: life.seconds >= longest, _any_signal(draw))
            yield life

    def saved_step(self) -> int:
        """Look up the step of the newest checkpoint."""
        newest = latest(self.folder / CHECKPOINTS)
        return read_state(newest)["progress"]["step"] if newest else 0

    def logged_step(self) -> int:
        """Look up the step of the last record that is complete."""
        path = self.folder / LOG
        if not path.exists():
            return 0
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - TAIL))
            *lines, _ = log.read().split(b"\n")
        return json.loads(lines[-1])["step"] if lines else 0


def _any_signal(draw: random.Random) -> int:
    return draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])


def resident_memory(process: int) -> float:
    """Add up the resident memory of a process and its data workers, in MiB; 0 if it has just ended."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        pages = sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in [process, *children])
    except FileNotFoundError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(arguments: list[str]) -> int:
    """Soak as long as the arguments say, and print what was found."""
    options = parse(arguments)
    ends = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        recipe = write_recipe(folder, options.seed)
        trial = Run(recipe, folder / "trial", TRIAL_STEPS).live()
        rate = TRIAL_STEPS / (trial.seconds - trial.seconds_to_begin)
        steps = max(TRIAL_STEPS, int(rate * SHARE * 60 * options.minutes))
        straight = Run(recipe, folder / "straight", steps)
        alone = straight.live()
        mean_life = alone.seconds_to_begin + max(60 * options.minutes / KILLS, SHORTEST_MEAN_LIFE)
        draw, rounds, verdicts = random.Random(options.seed), [], [judge_memory(alone)]
        while not rounds or time.monotonic() + alone.seconds < ends:
            killed = Run(recipe, folder / f"killed-{len(rounds) + 1}", steps)
            rounds.append(list(killed.live_dangerously(mean_life, ends, draw)))
            verdicts += compare(straight.folder, killed.folder, steps)
            print(f"run {len(rounds)}: killed {num_kills(rounds[-1:])} times", file=sys.stderr, flush=True)
    describe(steps, alone, rounds)
    verdicts.append((num_kills(rounds) > 0, f"kills: {num_kills(rounds)}"))
    for is_good, said in verdicts:
        print(f"{'ok    ' if is_good else 'FAILED'}  {said}")
    return 0 if all(is_good for is_good, _ in verdicts) else 1


def write_recipe(folder: Path, seed: int) -> Path:
    """Write the recipe and a corpus of words as frequent as their rank says (Zipf's law), in documents."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(draw.choice(letters, size)) for size in draw.integers(2, 9, 1500)]
    chances = 1 / np.arange(2, len(words) + 2)
    for name, documents in (("train", 400), ("validation", 20)):
        sentences = [
            [" ".join(draw.choice(words, 12, p=chances / chances.sum())) + "." for _ in range(12)]
            for _ in range(documents)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(map("\n".join, sentences)), encoding="utf-8")
    texts = {name: str(folder / f"{name}.txt") for name in ("train", "validation")}
    corpus = RECIPE["corpus"] | texts | {"cache": str(folder / "cache")}
    training = RECIPE["training"] | {"steps": TRIAL_STEPS, "seed": seed}
    recipe = RECIPE | {"corpus": corpus, "training": training, "output": str(folder / "run")}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return folder / "recipe.yaml"


def num_kills(rounds: Sequence[Sequence[Life]]) -> int:
    """Count the lives that did not come to the end of their run."""
    return sum(len(lives) - 1 for lives in rounds)


def describe(steps: int, alone: Life, rounds: Sequence[Sequence[Life]]) -> None:
    """Print what happened."""
    lives = list(chain.from_iterable(rounds))
    signals = [-signal.SIGKILL, -signal.SIGTERM, 130]
    killed, deaf, heard = (sum(life.status == status for life in lives) for status in signals)
    pairs = chain.from_iterable(map(pairwise, rounds))
    again = sum(life.last_step - after.began_at_step for life, after in pairs)
    rows = [
        ("", "left alone", "killed"),
        ("runs", "1", str(len(rounds))),
        ("steps of each", f"{steps:,}", f"{steps:,}"),
        ("seconds in all", f"{alone.seconds:,.0f}", f"{sum(life.seconds for life in lives):,.0f}"),
        ("processes", "1", str(len(lives))),
        ("ended by SIGKILL", "", str(killed)),
        ("ended by SIGTERM, with a checkpoint", "", str(heard)),
        ("ended by SIGTERM, before it listened", "", str(deaf)),
        ("logged steps that were taken again", "", f"{again:,}"),
    ]
    for row in rows:
        print("{:38}{:>12}{:>12}".format(*row))


def compare(straight: Path, killed: Path, steps: int) -> list[tuple[bool, str]]:
    """Compare two finished runs bit by bit."""
    logs = [[timeless(record) for record in read_log(folder / LOG)] for folder in (straight, killed)]
    weights = [load_file(folder / "model" / "model.safetensors") for folder in (straight, killed)]
    path = Path(CHECKPOINTS, f"step-{steps:08d}", "optimizer.pt")
    moments = [torch.load(folder / path)["optimizer"]["state"] for folder in (straight, killed)]
    flat = [{(i, name): moment[i][name] for i in moment for name in moment[i]} for moment in moments]
    differing = sum(one != other for one, other in zip(*logs, strict=False))
    num_weights = sum(weight.numel() for weight in weights[0].values())
    return [
        (logs[0] == logs[1], f"log: {len(logs[0]):,} and {len(logs[1]):,} records, {differing} differ"),
        (are_equal(*weights), f"weights: {num_weights:,}, largest difference {difference(*weights):g}"),
        (are_equal(*flat), f"optimizer: largest difference {difference(*flat):g}"),
    ]


def timeless(record: Record) -> Record:
    """Leave out of a record what depends on the machine's mood."""
    return {name: value for name, value in record.items() if name not in OF_THE_MACHINE}


def are_equal(one: dict[Any, torch.Tensor], other: dict[Any, torch.Tensor]) -> bool:
    """Return whether two states are equal bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def difference(one: dict[Any, torch.Tensor], other: dict[Any, torch.Tensor]) -> float:
    """Find the largest difference between what two states have in common."""
    return max((float((one[name] - other[name]).abs().max()) for name in one.keys() & other), default=0.0)


def judge_memory(life: Life) -> tuple[bool, str]:
    """Fit a line through the resident memory of a process and its data worker, once it has settled.

    After the last step it is left out: the worker is gone then.
    """
    samples = [(step, mib) for _, step, mib in life.samples if SETTLED <= step < life.last_step]
    if life.last_step < 2 * SETTLED:
        return False, f"memory: {life.last_step} steps are too few to judge it: give it more minutes"
    step, memory = np.array(samples).T
    slope = 1000 * float(np.polyfit(step, memory, 1)[0])
    return slope < FLAT, (
        f"memory: {slope:+.2f} MiB per 1,000 steps ({memory[:10].mean():,.0f} MiB at step {step[0]:,.0f}, "
        f"{memory[-10:].mean():,.0f} MiB at step {step[-1]:,.0f}); flat is below {FLAT:g}"
    )


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="how long it may take (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the corpus, the runs and the kills")
    parser.add_argument("--folder", type=Path, help="where the runs are left; deleted if not given")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
