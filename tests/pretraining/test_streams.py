"""Runs on a stream: what several processes learn from it is what one process does, whoever tokenizes."""

import json
import re
from pathlib import Path
from time import monotonic, sleep

import pytest
import yaml

from tercet.data.tokenizers.tokenizer import load_tokenizer, train_tokenizer
from tercet.pretraining.text import open_text

from ..logs import timeless
from ..pretraining_parts import reader_of
from ..saved_weights import require_near_models
from .conftest import changed, recipe_data_of, write_texts

STAGES = {"stages": [{"steps": 4, "sequence_length": 32}]}

STREAMED = """
import os, signal, sys
from functools import partial
from tercet.__main__ import main
from tercet.pretraining import text
from tercet.data import streaming

tokenize, rank, (noted, victim, *command) = text.tokenize_text, os.environ.get("RANK", "0"), sys.argv[1:]
first = []

def noting(documents, **options):
    if victim and rank == "1" and first:
        os.kill(os.getppid() if victim == "parent" else os.getpid(), signal.SIGKILL)
    first.append(os.getpid())
    with open(f"{noted}-{rank}", "a") as file:
        file.write("".join(f"{len(text)} {text!r}\\n" for text in documents))
    return tokenize(documents, **options)

text.tokenize_text = noting
streaming.TokenizedStream = partial(streaming.TokenizedStream, window_documents=40)
assert main(command) == 0
"""


class Streamed:
    """A recipe of a stream whose windows have some steps each, carried out by any number of processes."""

    def __init__(self, server, folder: Path):
        self.server, self.folder = server, folder
        write_texts(folder, {"train": 400, "validation": 8}, lambda: 6)

    def start(self, name, steps, processes, *options, victim="", **training):
        """Begin or resume the run of that name: `victim` is killed when process 1 tokenizes a second time."""
        settings = {"steps": steps, "log_every": 1, "precision": "fp32", "tokens_per_micro_batch": 140}
        settings |= {"schedule": {"kind": "constant", "warmup_steps": 0}} | STAGES | training
        kind = "masked_language_modeling"
        data = recipe_data_of(kind, self.folder, self.folder / name, **settings)
        data["corpus"]["streaming"] = True
        data["model"]["overrides"] = data["model"]["overrides"] | {"dropout": 0.0}
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(data))
        words = (str(self.folder / f"noted-{name}"), victim, "pretrain", str(file), *options)
        variables = {"TMPDIR": str(self.folder)}  # where killed processes leave windows
        return self.server.start(STREAMED, *words, processes=processes, variables=variables)

    def finish(self, *arguments, **options):
        """Begin or resume a run, and wait until it ends well."""
        run = self.start(*arguments, **options)
        assert self.server.wait(run) == 0, run.output.read_text()

    def log(self, name):
        """Read the records of steps, without what depends on the clock."""
        return [record for record in timeless(self.folder / name) if "data" in record]

    def noted(self, name, rank):
        """List the documents of the stream that a process has tokenized, as characters and text."""
        lines = (self.folder / f"noted-{name}-{rank}").read_text().splitlines()
        return [(int(size), text) for size, text in (line.split(" ", 1) for line in lines)]

    def require_equal(self, name, expected):
        """Check that two runs read the same, bit for bit, and learned the same, up to rounding."""
        for left, right in zip(self.log(name), self.log(expected), strict=True):
            assert left["data"] == right["data"]
            for key in right.keys() - {"data"}:
                assert left[key] == pytest.approx(right[key], rel=1e-5), key
        require_near_models(self.folder / name / "model", self.folder / expected / "model", 1e-5)


@pytest.fixture
def streamed(fork_server, tmp_path):
    return Streamed(fork_server, tmp_path)


def test_control_tokens_of_a_stream_and_what_it_leaves_out_are_told(tmp_path, recipe_of, capsys):
    file, folder = tmp_path / "train.jsonl", tmp_path / "tokenizer"
    texts = ["<|a|> the cat sat</s>"] * 30
    train_tokenizer(texts, "byte_bpe", 300, special_tokens=["<|a|>"]).save_pretrained(folder)
    file.write_text("\n".join([*(json.dumps({"text": text}) for text in texts), "{"]))
    recipe = recipe_of("causal_language_modeling", tmp_path, tmp_path / "run")
    recipe = changed(recipe, train=str(file), streaming=True, skip_bad_records=True)
    documents = open_text(recipe.corpus, recipe.objective, "train")
    source = reader_of(recipe, load_tokenizer(str(folder))).training_source(documents)(64)
    with pytest.warns(UserWarning, match="train.jsonl") as told:
        _ = source.epoch(0), source.epoch(1)
    shown = " ".join(str(warning.message) for warning in told)
    assert "skipped 1 of 31 records as bad" in shown
    assert "'</s>', which begins or ends texts" in shown
    assert capsys.readouterr().err.count("train.jsonl, a window of it: control tokens <|a|> 10,000 (") == 1


def test_what_is_drawn_is_drawn_anew_when_the_text_comes_again(tmp_path, recipe_of):
    """A window is a thousand passes over ten documents: which sentences follow each other changes."""
    file, document = tmp_path / "train.txt", "the cat sat.\nthe dog ran.\nit was a day."
    file.write_text("\n\n".join([document] * 10))
    tokenizer = train_tokenizer([document] * 10, "words", 600)
    recipe = recipe_of("masked_language_modeling_with_next_sentence", tmp_path, tmp_path / "run")
    recipe = changed(recipe, train=str(file), streaming=True)
    documents = open_text(recipe.corpus, recipe.objective, "train")
    source = reader_of(recipe, tokenizer).training_source(documents)(64)
    drawn = [[source.epoch(window)[place]["next_sentence_label"] for place in range(50)] for window in (0, 1)]
    assert drawn[0] != drawn[1]


def test_two_processes_learn_from_a_stream_what_one_does_and_each_tokenizes_half_of_it(streamed):
    """Fourteen steps are two stages and four windows; the two processes have data workers."""
    streamed.finish("one", 14, 1)
    streamed.finish("two", 14, 2, num_workers=1)
    assert streamed.log("one")[-1]["epoch"] >= 3
    streamed.require_equal("two", "one")
    alone, shared = streamed.noted("one", 0), [streamed.noted("two", rank) for rank in (0, 1)]
    for read in (alone, shared[0] + shared[1]):
        assert len(read) == len({*read}), "nothing is tokenized twice, whatever number of stages and workers"
    assert {*shared[0], *shared[1]} >= {*alone}, "the processes that read ahead may have gone further"
    sizes = [sum(size for size, text in own if (size, text) in alone) for own in shared]
    assert sum(sizes) == sum(size for size, _ in alone)
    assert max(sizes) < 0.55 * sum(sizes)


@pytest.mark.slow
def test_a_run_on_a_stream_goes_on_with_other_numbers_of_processes_and_workers(streamed):
    streamed.finish("one", 14, 1)
    streamed.finish("changing", 6, 2)
    streamed.finish("changing", 10, 3, "--resume")
    streamed.finish("changing", 14, 1, "--resume", num_workers=2)
    streamed.require_equal("changing", "one")


@pytest.mark.parametrize("num_workers", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_process_that_is_lost_while_it_tokenizes_ends_the_others_with_a_line(streamed, num_workers):
    """With data workers it is the parent of the one that reads ahead, which has copies of its connections."""
    victim = "parent" if num_workers else "itself"
    run, deadline = streamed.start("lost", 14, 2, victim=victim, num_workers=num_workers), monotonic() + 60
    while "ConnectionError: another process of the run has ended" not in (said := run.output.read_text()):
        assert monotonic() < deadline, said
        sleep(0.1)
    assert streamed.server.wait(run) != 0


def test_the_death_of_the_process_that_reads_ahead_is_told(streamed):
    run = streamed.start("dead", 14, 2, victim="itself", num_workers=1)
    assert streamed.server.wait(run) == 1
    assert re.search(
        r"a data worker died \(SIGKILL\) while it prepared window \d of the stream .*train\.txt",
        run.output.read_text(),
    )
