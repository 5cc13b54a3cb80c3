"""Names of others' files at every place of a model's folder: no command follows one.

Each place of each JSON file of small folders, and keys that some reader knows, gets a path, a way up, a file
of the current folder, or code or a kernel of another repository; each file becomes a link. An audit hook sees
every file that Python opens and every program that is started; what libraries in Rust read shows by its words
in what is loaded, saved or pushed.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
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

from tercet.__main__ import run_command
from tercet.configs.recipe import load_preset
from tercet.data.tokenizers.tokenizer import load_tokenizer, train_tokenizer
from tercet.distill.teacher import load_model as load_teacher
from tercet.fewshot.subject import load_subject
from tercet.finetune.model import Start, load_task_model
from tercet.finetune.prediction import Predictor
from tercet.finetune.tasks.task import build_task, keep_task
from tercet.finetune.tasks.texts import ClassificationRecipe
from tercet.modeling import TercetEncoderConfig, TercetEncoderForSequenceClassification
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.model_folder import save_tokenizer
from tercet.modeling.saved.saving import save_loadable
from tercet.modeling.saved.sentence_vectors import SentenceVectors, sentence_files, write_files
from tercet.tools.embed.embedding import load_embedder
from tercet.tools.inspect.page import load as load_inspected
from tercet.tools.play.loaded_model import load_model
from tercet.tools.push.publication import prepare

WORD = "confidential"
"""Stands in every file that is not of the folder."""

THEIRS = "them/theirs"
SIZES = {"vocab_size": 90, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
TEXTS = ["a b c ab bc abc", "the cat sat on the mat"] * 3

ADDED = {
    "tokenizer_config.json": (
        *("vocab", "merges", "vocab_file", "merges_file", "tokenizer_file", "spm_file", "gguf_file"),
        *("init_inputs", "fast_tokenizer_files", "sp_model_kwargs", "auto_map", "chat_template"),
        *("name_or_path", "extra_special_tokens"),
    ),
    "special_tokens_map.json": ("vocab", "tokenizer_file", "unk_token", "merges"),
    "config.json": (
        *("auto_map", "_name_or_path", "transformers_weights", "attn_implementation", "tokenizer_class"),
        *("architectures", "custom_pipelines", "gguf_file", "quantization_config"),
        *("base_model_name_or_path", "experts_implementation"),
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


PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"}
"""Events of programs that are started."""


def is_own_program(arguments: tuple[Any, ...]) -> bool:
    """Return whether Python is started, as our commands start it, or a machine is asked what it is."""
    program = [os.fspath(each) for each in arguments[1] or ()] if len(arguments) > 1 else []
    return program[:2] == [sys.executable, "-P"] or program[:1] in (
        ["uname"],
        ["ldconfig"],
        ["file"],
        ["lscpu"],
    )


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
        elif self.outside and event in PROGRAMS and not is_own_program(arguments):
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
    """Save a classifier that BERT is equal to, with its code and its task."""
    sizes = {"intermediate_size": 32, "max_position_embeddings": 512} | SIZES
    config = TercetEncoderConfig(**load_preset("bert-base") | sizes, classifier_pooling="first", num_labels=2)
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
    "finetune": lambda folder: load_task_model(Start(Checkpoint.open(folder)), classification(), 0).tokenizer,
    "pretrain": lambda folder: Checkpoint.open(folder).member,
    "prepare": load_tokenizer,
}
"""How each command reads a model, and what of it is kept."""


OVERRIDES = (
    "data.train=rows.jsonl data.validation=rows.jsonl training.epochs=1 training.seeds=[0] "
    "training.precision=fp32 training.batch_size=2"
)

LINES = {
    "doctor": "doctor FOLDER",
    "inspect": "inspect FOLDER cat --output page.html --overwrite",
    "embed": "embed FOLDER rows.jsonl --output vectors.parquet --overwrite",
    "predict": "predict FOLDER cat",
    "push": "push FOLDER me/small --dry-run",
    "import": "import FOLDER imported --overwrite",
    "export": "export FOLDER exported --overwrite",
    "convert": "convert FOLDER --to encoder --output converted --overwrite",
    "finetune": f"finetune text-classification model.path=FOLDER output=tuned {OVERRIDES} --overwrite",
    "fewshot": "fewshot prompts.yaml --model FOLDER --overwrite",
    "prepare": "prepare prepare-text corpus.path=texts.txt tokenizer=FOLDER output=prepared --overwrite",
    "pretrain": "pretrain words.yaml tokenizer.path=FOLDER --overwrite",
}
"""Whole commands, as they are written on a command line; none needs much of a model of one layer."""

PROMPTS = {
    "task": {"kind": "multiple_choice", "context": "{{ text }}", "choices": ["a", "b"], "target": "label"},
    "data": {"test": "rows.jsonl"},
    "prompting": {"num_fewshot": [0]},
    "output": "prompted",
}
WORDS = {
    "objective": {"kind": "causal_language_modeling"},
    "model": {"preset": "decoder-tiny"},
    "corpus": {"train": "texts.txt", "validation": "texts.txt"},
    "training": {"steps": 1, "tokens_per_step": 64, "precision": "fp32"},
    "output": "trained",
}


def write_inputs() -> None:
    """Write what whole commands read beside a model into the current folder."""
    rows = [{"text": text, "label": "ab"[number % 2]} for number, text in enumerate(TEXTS * 2)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("texts.txt").write_text("\n\n".join(TEXTS * 20))
    Path("prompts.yaml").write_text(json.dumps(PROMPTS))
    Path("words.yaml").write_text(json.dumps(WORDS))


def carry_out_line(command: str, folder: str) -> tuple[int, list[str]]:
    """Carry a whole command out, and return its exit code with all that it has printed and written."""
    printed, code = io.StringIO(), 1
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            code = run_command(LINES[command].replace("FOLDER", folder).split())
        except SystemExit as ended:  # of tercet doctor, whose checks have failed
            print(ended)
    written = [path for path in Path().rglob("*") if path.is_file() and not path.is_symlink()]
    texts = [path.read_text(errors="replace") for path in written if path.suffix != ".safetensors"]
    return code, [printed.getvalue(), *texts]


WHOLE = {name: lambda folder, name=name: carry_out_line(name, folder)[1] for name in LINES}
"""Whole commands, and what they have printed and written."""


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


def violations(run: Callable[[str], Any], folder: Path, fetched: list[str]) -> list[str]:
    """Read a folder, and list what happened that nobody has asked for."""
    WATCH.seen.clear()
    fetched.clear()
    WATCH.outside = str(folder.parent / "elsewhere")
    kept: Any = ""
    try:
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            kept = run(str(folder))
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


def run_all(
    kind: str, elsewhere: Path, fetched: list[str], every: int, commands: Mapping[str, Callable[[str], Any]]
) -> tuple[int, list[str]]:
    """Plant at each place, and let every `every`th pair of place and command be read; count, list faults."""
    origin, folder = elsewhere.parent / f"origin {kind}", elsewhere.parent / "model"
    if not origin.exists():
        FOLDERS[kind](origin)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(origin, folder)
    count, faults = 0, []
    for number, (file, plant) in enumerate(planted(folder, elsewhere)):
        before = file.read_bytes() if file.exists() else None
        for turn, (command, run) in enumerate(commands.items()):
            if (number + turn) % every:
                continue
            file.unlink(missing_ok=True)
            plant(number // every + turn)
            count += 1
            faults += [
                f"{command}, {file.name}, plant {number // every + turn}: {each}"
                for each in violations(run, folder, fetched)
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
        counts[kind], found = run_all(kind, elsewhere, fetched, every, COMMANDS)
        faults += found
    with capsys.disabled():
        print(f"\n{sum(counts.values())} names at places, read by commands: {counts}; {len(faults)} followed")
    assert not faults, "\n".join(faults[:20])


@pytest.mark.slow
def test_no_whole_command_follows_a_name_out_of_a_folder(elsewhere, fetched, capsys):
    write_inputs()
    served = {name: [] for name in LINES}
    for kind, make in FOLDERS.items():
        folder = elsewhere.parent / f"origin {kind}".replace(" ", "-")
        make(folder)
        for name in LINES:
            if carry_out_line(name, str(folder))[0] == 0:
                served[name].append(kind)
    assert all(served.values()), [name for name in served if not served[name]]
    counts, faults = {}, []
    for kind in FOLDERS:
        counts[kind], found = run_all(kind, elsewhere, fetched, 97, WHOLE)
        faults += found
    with capsys.disabled():
        print(f"\n{sum(counts.values())} names, read by whole commands: {counts}; {len(faults)} followed")
    assert not faults, "\n".join(faults[:20])
