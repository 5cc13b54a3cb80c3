"""How fast the character language model learns, and how fast it embeds the words of sentences.

    python benchmarks/speed.py characters --flair FLAIR/bin/python --text data/pretrain_en/validation
    python benchmarks/speed.py characters --hidden 2048 --rounds 3

One thread. Training: random characters in batches of 32 rows of 250, both directions. Embedding: sentences of
a text. Seconds are those of the processor, which other programs disturb least, and the sides take turns:

tercet         the member of the family, in float32
tercet-bf16    the same in bfloat16 autocast, as `tercet pretrain` trains where the processor is fast in it
plain torch    training as anyone would write it: two embeddings, two `nn.LSTM`, two linear layers, the same
               loss and optimizer, all logits in memory
flair          flair's language models and `FlairEmbeddings`, of the same sizes, by the Python of an
               environment that has flair; it embeds 32 sentences of like lengths at a time
"""

import json
import subprocess
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from statistics import median
from typing import IO, Any, cast

import torch
from measuring import Conditions, in_fresh_process
from publishing import Result, describe_run
from speed import Benchmark
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from tercet.modeling import TercetCharacterConfig, TercetCharacterLanguageModel
from tercet.text.documents import open_documents
from tercet.text.tokenizer import train_tokenizer
from tercet.training.optimizers import build_optimizer
from tercet.training.recipe import OptimizerRecipe

VOCABULARY, EMBEDDING = 100, 64
ROWS, LENGTH = 32, 250

Work = Callable[[], float]
"""Does it once, and gives the seconds."""


class PlainDirection(nn.Module):
    """A language model of one direction, written down."""

    def __init__(self, hidden: int):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, hidden, batch_first=True)
        self.head = nn.Linear(hidden, VOCABULARY)

    def forward(self, rows: Tensor) -> Tensor:
        """Mean cross-entropy of the next characters of rows (S, T)."""
        logits = self.head(self.lstm(self.embedding(rows[:, :-1]))[0])
        return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


class PlainModel(nn.Module):
    """Two of them."""

    def __init__(self, hidden: int):
        super().__init__()
        self.directions = nn.ModuleList(PlainDirection(hidden) for _ in range(2))

    def forward(self, rows: Tensor) -> Tensor:
        """Sum of the losses of both directions."""
        forward, backward = self.directions
        return forward(rows) + backward(rows.flip(1))


class OurModel(nn.Module):
    """The member of the family."""

    def __init__(self, hidden: int):
        super().__init__()
        config = TercetCharacterConfig(
            vocab_size=VOCABULARY, hidden_size=hidden, embedding_size=EMBEDDING, dropout=0.0
        )
        self.model = TercetCharacterLanguageModel(config)

    def forward(self, rows: Tensor) -> Tensor:
        """Sum of the losses of both directions."""
        return self.model(rows, labels=rows).loss


def products(precision: str) -> torch.autocast:
    """Return what computes products in bfloat16, or leaves them as they are."""
    return torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")


def training_step(model: nn.Module, precision: str = "fp32") -> Work:
    """Return a step of training on random characters, the same ones for all models."""
    optimizer = build_optimizer(model.train(), OptimizerRecipe(kind="adamw", learning_rate=1e-3))
    generator = torch.Generator().manual_seed(0)

    def step() -> float:
        rows = torch.randint(1, VOCABULARY, (ROWS, LENGTH), generator=generator)
        start = time.process_time()
        with products(precision):
            loss = model(rows)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - start

    return step


def embedding_pass(
    hidden: int,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    precision: str = "fp32",
) -> Work:
    """Return a reading of all sentences by our model."""
    model = OurModel(hidden).model.model.eval()

    def embed() -> float:
        start = time.process_time()
        with torch.inference_mode(), products(precision):
            model.embed_words(tokenizer, sentences)
        return time.process_time() - start

    return embed


class Flair:
    """A process that works with flair when it is told to.

    Args:
        python: Of an environment that has flair.
        about: Sizes and sentences; see `characters_flair.py`.
    """

    def __init__(self, python: Path, about: Mapping[str, object]):
        script = Path(__file__).with_name("characters_flair.py")
        self.process = subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._tell(json.dumps(about))

    def __enter__(self) -> "Flair":
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        cast(IO[str], self.process.stdin).close()
        self.process.wait()

    def work(self, kind: str) -> Work:
        """Return the work of a kind, `train` or `embed`."""

        def work_once() -> float:
            self._tell(kind)
            if answer := cast(IO[str], self.process.stdout).readline():
                return float(answer)
            raise SystemExit("flair's process died: see its message above")

        return work_once

    def _tell(self, line: str) -> None:
        inputs = cast(IO[str], self.process.stdin)
        inputs.write(f"{line}\n")
        inputs.flush()


def take_turns(sides: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """Time all sides in turns, after a pass that does not count; return the median of each side."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, work in sides.items():
            seconds[name].append(work())
    return {name: median(own[1:]) for name, own in seconds.items()}


def sentences_of(source: str, count: int) -> list[list[str]]:
    """Return the words of the first lines of a text that have some."""
    lines = (line.split() for text in open_documents(source) for line in text.split("\n"))
    return list(islice(filter(None, lines), count))


def measure_work(kind: str, options: Namespace, conditions: Conditions, _: Result) -> dict[str, Any]:
    """Time all sides in one process."""
    sizes = (options.hidden, options.rounds, options.text, options.sentences, options.flair)
    return in_fresh_process(conditions, time_work, kind, *sizes)


def time_work(
    kind: str, hidden: int, rounds: int, text: str, num_sentences: int, flair: Path | None
) -> dict[str, Any]:
    """Time a kind of work, `train` or `embed`: the `seconds` of each side, and the `amounts` of a pass."""
    sentences = sentences_of(text, num_sentences)
    lines = [" ".join(words) for words in sentences]
    tokenizer = train_tokenizer(lines, "characters", VOCABULARY)
    sides: dict[str, Work] = {}
    for name, precision in (("tercet", "fp32"), ("tercet-bf16", "bf16")):
        if kind == "train":
            sides[name] = training_step(OurModel(hidden), precision)
        else:
            sides[name] = embedding_pass(hidden, tokenizer, sentences, precision)
    if kind == "train":
        sides["plain torch"] = training_step(PlainModel(hidden))
    with ExitStack() as stack:
        if flair:
            # Flair's dictionary has an entry for unknown characters already.
            about = {
                "characters": [each for each in tokenizer.get_vocab() if len(each) == 1][: VOCABULARY - 1],
                "hidden": hidden, "embedding": EMBEDDING, "rows": ROWS, "length": LENGTH,
                "sentences": sentences,
            }  # fmt: skip
            sides["flair"] = stack.enter_context(Flair(flair, about)).work(kind)
        seconds = take_turns(sides, rounds)
    of_text = {"words": sum(map(len, sentences)), "characters": sum(map(len, lines))}
    return {"seconds": seconds, "amounts": {"characters": ROWS * LENGTH} if kind == "train" else of_text}


def render(result: Result) -> str:
    """Write the speed of each side, and its ratio to the last one's, flair's or that of plain torch."""
    lines = describe_run(result)
    for title, case in result["cases"].items():
        lines += ["", title]
        *_, (peer, theirs) = case["seconds"].items()
        for name, own in case["seconds"].items():
            speeds = ", ".join(f"{count / own:9,.0f} {unit}/s" for unit, count in case["amounts"].items())
            lines.append(f"  {name:12} {speeds}, {theirs / own:.2f} x {peer}")
    return "\n".join(lines)


BENCHMARK = Benchmark(
    {"training, both directions": "train", "words of sentences": "embed"},
    measure_work,
    text=render,
    options={
        "--hidden": {"type": int, "default": 512, "help": "states of one direction"},
        "--text": {"default": "documentation", "help": "what sentences are taken from"},
        "--sentences": {"type": int, "default": 1000, "help": "how many are embedded"},
        "--flair": {"type": Path, "metavar": "PYTHON", "help": "of an environment that has flair"},
    },
    defaults={"threads": 1, "rounds": 7},
)
