"""Names of others' files at every place of a model's folder: no command follows one.

Each place of each JSON file of small folders, and keys that some reader knows, gets a path, a way up, a file
of the current folder, or code or a kernel of another repository; each file becomes a link. An audit hook sees
every file that Python opens and every program that is started; what libraries in Rust read shows by its words
in what is loaded, saved or pushed.
"""

import contextlib
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import hub

from tercet.conversion.embedding import load_embedder
from tercet.distill.teacher import load_model as load_teacher
from tercet.fewshot.subject import load_subject
from tercet.finetune.model import load_pretrained_model
from tercet.finetune.prediction import Predictor
from tercet.finetune.recipe import PretrainedModelRecipe
from tercet.finetune.task_recipes import ClassificationRecipe
from tercet.finetune.tasks import build_task, keep_task
from tercet.hub.publication import prepare
from tercet.inspection.page import load as load_inspected
from tercet.modeling import TercetEncoderConfig, TercetEncoderForSequenceClassification
from tercet.play.loaded_model import load_model
from tercet.storage.checkpoint import Checkpoint
from tercet.storage.model_folder import save_tokenizer
from tercet.storage.saving import save_loadable
from tercet.storage.sentence_vectors import SentenceVectors, sentence_files, write_files
from tercet.text.tokenizer import load_tokenizer, train_tokenizer

WORD = "confidential"
"""Stands in every file that is not of the folder."""

THEIRS = "them/theirs"
SIZES = {"vocab_size": 90, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
TEXTS = ["a b c ab bc abc", "the cat sat on the mat"] * 3

ADDED = {
    "tokenizer_config.json": (
        *(
            "vocab",
            "merges",
            "vocab_file",
            "merges_file",
            "tokenizer_file",
            "spm_file",
            "gguf_file",
            "init_inputs",
        ),
        *(
            "fast_tokenizer_files",
            "sp_model_kwargs",
            "auto_map",
            "chat_template",
            "name_or_path",
            "extra_special_tokens",
        ),
    ),
    "special_tokens_map.json": ("vocab", "tokenizer_file", "unk_token", "merges"),
    "config.json": (
        *(
            "auto_map",
            "_name_or_path",
            "transformers_weights",
            "attn_implementation",
            "tokenizer_class",
            "architectures",
        ),
        *(
            "custom_pipelines",
            "gguf_file",
            "quantization_config",
            "base_model_name_or_path",
            "experts_implementation",
        ),
    ),
    "generation_config.json": ("custom_generate", "assistant_model", "auto_map", "cache_implementation"),
    "adapter_config.json": ("base_model_name_or_path", "peft_type"),
    "modules.json": ("path",),
    "sentence_bert_config.json": ("tokenizer_name_or_path", "model_args", "cache_dir"),
    "task.json": ("task", "metrics"),
}
"""File -> keys that are planted there, too, as readers could know them."""


FOLLOWED = ("auto_map", "custom_pipelines", "attn_implementation", "transformers_weights")
"""Keys by which programs that load a model find code and files."""


class Watch:
    """What happens while commands read: files opened outside of the folder, programs started, fetches."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.outside = ""
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (
            self.outside
            and event in {"open", "os.listdir", "os.scandir"}
            and isinstance(arguments[0], str | bytes)
        ):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path.startswith(self.outside):
                self.seen.append(f"opened {path}")
        elif self.outside and event in {
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.posix_spawn",
            "os.fork",
        }:
            self.seen.append(f"{event} {arguments}")


WATCH = Watch()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory) -> Path:
    """Write what is none of the folder's: words, a tokenizer, weights, code."""
    place = tmp_path_factory.mktemp("machine") / "elsewhere"
    place.mkdir()
    train_tokenizer([f"{WORD} the cat"] * 9, "wordpiece", 90).backend_tokenizer.save(
        str(place / "tokenizer.4.0.0.json")
    )
    (place / "words.txt").write_text(f"{WORD}\n[UNK]\nthe\n")
    (place / "words.json").write_text(json.dumps({WORD: 0, "[UNK]": 1}))
    (place / "code.py").write_text(f"raise SystemExit({WORD!r})\n")
    (place / "model.safetensors").write_bytes(b"")
    return place


def bert(folder: Path) -> None:
    torch.manual_seed(0)
    sizes = SIZES | {"intermediate_size": 32, "max_position_embeddings": 64}
    BertModel(BertConfig(**sizes, pad_token_id=0)).save_pretrained(folder)
    train_tokenizer(TEXTS, "wordpiece", 90).save_pretrained(folder)


def bert_of_words(folder: Path) -> None:
    """Save no tokenizer.json: its class makes the tokenizer of the words."""
    bert(folder)
    names = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(sorted(names, key=names.__getitem__)) + "\n")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"unk_token": "[UNK]", "pad_token": "[PAD]"}))


def gpt2(folder: Path) -> None:
    """Save weights in several files."""
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=300, n_embd=16, n_layer=1, n_head=2, n_positions=64, bos_token_id=3)
    )
    model.save_pretrained(folder, max_shard_size="20KB")
    train_tokenizer(TEXTS, "byte_bpe", 300).save_pretrained(folder)


def t5(folder: Path) -> None:
    config = T5Config(
        vocab_size=90, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    train_tokenizer(TEXTS, "unigram", 40, template="end").save_pretrained(folder)


def ours(folder: Path) -> None:
    """Save a classifier, with its code and its task."""
    config = TercetEncoderConfig(**SIZES, classifier_pooling="first", num_labels=2)
    save_loadable(TercetEncoderForSequenceClassification(config), folder, with_code=True)
    save_tokenizer(train_tokenizer(TEXTS, "wordpiece", 90), folder)
    keep_task(classification(), folder, 64)


def sentences(folder: Path) -> None:
    bert(folder)
    write_files(sentence_files(SentenceVectors("mean", max_length=32, query_prompt="query: "), 16), folder)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "bert": bert,
    "bert of words": bert_of_words,
    "gpt2": gpt2,
    "t5": t5,
    "ours": ours,
    "sentences": sentences,
}


def classification() -> Any:
    rows = Dataset.from_dict({"text": ["a", "b"], "label": ["bad", "good"]})
    return build_task(ClassificationRecipe(kind="classification"), rows)


def embed(folder: str) -> Any:
    return load_embedder(folder).embed(["the cat"])


def distill(folder: str) -> Any:
    """Load a teacher, and save it as a student begins."""
    checkpoint = Checkpoint.open(folder)
    saved = Path("saved")
    shutil.rmtree(saved, ignore_errors=True)
    save_loadable(load_teacher(checkpoint), saved, with_code=True)
    save_tokenizer(checkpoint.own_tokenizer(), saved)
    return [file.read_text(errors="replace") for file in saved.glob("*.json")]


def push(folder: str) -> Any:
    sent = []
    for file in prepare(folder, "me/small").files:
        source = file.source
        if isinstance(source, Path):
            assert source.resolve().is_relative_to(Path(folder).resolve()), source
        sent.append(source.decode(errors="replace") if isinstance(source, bytes) else file.path)
    return sent


COMMANDS: dict[str, Callable[[str], Any]] = {
    "inspect": lambda folder: load_inspected(folder, trust_remote_code=False).tokenizer,
    "embed": embed,
    "distill": distill,
    "push": push,
    "play": lambda folder: load_model(folder).tokenizer,
    "predict": lambda folder: Predictor(Checkpoint.open(folder)).encoder.tokenizer,
    "fewshot": lambda folder: load_subject(Checkpoint.open(folder)).tokenizer,
    "finetune": lambda folder: (
        load_pretrained_model(PretrainedModelRecipe(path=folder), classification(), 0).tokenizer
    ),
    "pretrain": lambda folder: Checkpoint.open(folder).member,
    "prepare": load_tokenizer,
}
"""How each command reads a model, and what of it is kept."""


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of nested data; of a list and of a vocabulary, the first entry's."""
    if place:
        yield place
    if isinstance(value, dict):
        inner = list(value)[:1] if len(value) > 40 and place else list(value)
        for key in inner:
            yield from places(value[key], (*place, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*place, 0))


def put(value: Any, place: tuple[Any, ...], plant: Any) -> Any:
    """Return nested data with something else at a place."""
    if not place:
        return plant
    copy: Any = list(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else {}
    copy[place[0]] = put(
        copy[place[0]] if place[0] in copy or isinstance(copy, list) else None, place[1:], plant
    )
    return copy


def plants(elsewhere: Path) -> list[Any]:
    """List names of what is not the folder's."""
    return [
        *(
            str(elsewhere / name)
            for name in ("words.txt", "words.json", "tokenizer.4.0.0.json", "code.Theirs")
        ),
        *("../elsewhere/words.txt", "../elsewhere/code.Theirs", "../elsewhere/model.safetensors", "near.txt"),
        *(f"{THEIRS}--code.Theirs", "them/kernel", [str(elsewhere / "words.txt")], {"": "them/kernel"}),
        {"AutoTokenizer": [None, f"{THEIRS}--code.Theirs"], "AutoConfig": "../elsewhere/code.Theirs"},
        {"weights_only": False, "model_file": str(elsewhere / "words.txt")},
    ]


def files_of(folder: Path) -> list[Path]:
    names = {*ADDED, *(path.relative_to(folder).as_posix() for path in folder.rglob("*.json"))}
    return sorted(folder / name for name in names)


def planted(folder: Path, elsewhere: Path) -> Iterator[tuple[Path, Callable[[int], None]]]:
    """Yield, for each place, its file, and what plants there the name of a number."""
    names = plants(elsewhere)

    def planting(file: Path, whole: Any, place: tuple[Any, ...]) -> Callable[[int], None]:
        return lambda number: (
            file.write_text(json.dumps(put(whole, place, names[number % len(names)]))) and None  # pyright: ignore
        )

    for file in files_of(folder):
        whole = json.loads(file.read_text()) if file.exists() else [{}] if file.name == "modules.json" else {}
        added = [(key,) for key in ADDED.get(file.name, ()) if isinstance(whole, dict) and key not in whole]
        for place in (*places(whole), *added):
            yield file, planting(file, whole, place)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        for target in (elsewhere / "words.txt", elsewhere / "words.json"):
            yield (
                file,
                lambda number, file=file, target=target: (
                    file.unlink(missing_ok=True),
                    file.symlink_to(target),
                )[1],
            )


def violations(command: str, folder: Path, fetched: list[str]) -> list[str]:
    """Run a command, and list what it did that nobody has asked for."""
    WATCH.seen.clear()
    fetched.clear()
    WATCH.outside = str(folder.parent / "elsewhere")
    kept: Any = ""
    try:
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            kept = COMMANDS[command](str(folder))
    finally:
        WATCH.outside = ""
    if hasattr(kept, "get_vocab"):
        kept = [f"{WORD} became a token"] * (WORD in kept.get_vocab())
    said = [text for text in kept if is_told(text)] if isinstance(kept, list) else []
    return [*WATCH.seen, *fetched, *(f"kept {text[:200]}" for text in said)]


def is_told(text: str) -> bool:
    """Return whether a saved file has others' words, or names code or a kernel of another repository."""
    try:
        facts = json.loads(text)
    except ValueError:
        facts = None
    named = [facts.get(key) for key in FOLLOWED] if isinstance(facts, dict) else []
    return WORD in text or "them/" in json.dumps(named)


@pytest.fixture
def fetched(monkeypatch, elsewhere) -> list[str]:
    """Note which repositories are asked for; none is there."""
    names: list[str] = []

    def note(path_or_repo_id: Any, *arguments: Any, **options: Any) -> Any:
        if not Path(path_or_repo_id).exists():
            names.append(f"fetched {path_or_repo_id}")
            raise OSError(f"{path_or_repo_id} is not there")
        return usual(path_or_repo_id, *arguments, **options)

    usual = hub.cached_files
    monkeypatch.setattr(hub, "cached_files", note)
    (elsewhere.parent / "cwd").mkdir(exist_ok=True)
    monkeypatch.chdir(elsewhere.parent / "cwd")
    (elsewhere / "near.txt").write_text(WORD)
    Path("near.txt").unlink(missing_ok=True)
    Path("near.txt").symlink_to(elsewhere / "near.txt")
    return names


def run_all(kind: str, elsewhere: Path, fetched: list[str], every: int) -> tuple[int, list[str]]:
    """Plant at each place, and let every `every`th pair of place and command be read; count, list faults."""
    origin, folder = elsewhere.parent / f"origin {kind}", elsewhere.parent / "model"
    if not origin.exists():
        FOLDERS[kind](origin)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(origin, folder)
    count, faults, commands = 0, [], list(COMMANDS)
    for number, (file, plant) in enumerate(planted(folder, elsewhere)):
        before = file.read_bytes() if file.exists() else None
        for turn, command in enumerate(commands):
            if (number + turn) % every:
                continue
            file.unlink(missing_ok=True)
            plant(number // every + turn)
            count += 1
            faults += [
                f"{command}, {file.name}, plant {number // every + turn}: {each}"
                for each in violations(command, folder, fetched)
            ]
        file.unlink(missing_ok=True)
        if before is not None:
            file.write_bytes(before)
    return count, faults


def test_folders_are_read_as_they_are(elsewhere, fetched):
    """Else nothing would be tried where something is planted."""
    read: dict[str, list[str]] = {}
    refused: list[str] = []
    for kind, make in FOLDERS.items():
        folder = elsewhere.parent / f"origin {kind}"
        make(folder)
        for command, run in COMMANDS.items():
            try:
                run(str(folder))
            except ValueError as error:
                refused.append(f"{command} {kind}: {error}")
            else:
                read.setdefault(command, []).append(kind)
    assert read.keys() == COMMANDS.keys(), refused
    assert sum(map(len, read.values())) >= 40, refused


@pytest.mark.parametrize(
    "every", [pytest.param(197, id="sample"), pytest.param(7, marks=pytest.mark.slow, id="all")]
)
def test_no_name_is_followed_out_of_a_folder(every, elsewhere, fetched, capsys):
    counts = {}
    faults = []
    for kind in FOLDERS:
        counts[kind], found = run_all(kind, elsewhere, fetched, every)
        faults += found
    with capsys.disabled():
        print(f"\n{sum(counts.values())} names at places, read by commands: {counts}; {len(faults)} followed")
    assert not faults, "\n".join(faults[:20])
