"""What is wrong with names, keys, values, files and folders is answered before torch is imported."""

import json
import os
import subprocess
import sys

import pytest

from tercet.__main__ import main
from tercet.configs.recipe import load_recipe, preset_names, recipe_folders
from tercet.configs.schema import FILE
from tercet.data.files.reading import require_columns_early, require_text_early
from tercet.kinds import KINDS, command_of

WRONG = [
    ("pretrain encoder-dmo", "did you mean encoder-demo"),
    ("pretrain encoder-demo training.stepz=3", "did you mean training.steps?"),
    ("pretrain sst2", "is a fine-tuning recipe: run `tercet finetune sst2`"),
    ("finetune copa", "is a few-shot recipe: run `tercet fewshot copa`"),
    ("plan sst2", "is a fine-tuning recipe; tercet plan reads a pretraining recipe"),
    ("tokenizer task-distilled", "is a distillation recipe; tercet tokenizer reads a pretraining recipe"),
    ("plan encoder-demo device=tpu", "it is this_machine, which is measured, or one of a100,"),
    ("plan encoder-demo devises=8", "did you mean devices?"),
    ("plan encoder-demo devices=0", "plan: devices = 0: must be greater than 0"),
    ("plan encoder-demo trainin.steps=3", "did you mean training?"),
    ("plan encoder-demo devices", "plan: override 'devices': write key=value"),
    ("pretrain encoder-demo hidden_size=64", "did you mean model.overrides.hidden_size?"),
    ("pretrain encoder-demo model.hidden_size=64", "did you mean model.overrides.hidden_size?"),
    ("distill task-distilled student.hidden_size=64", "did you mean student.overrides.hidden_size?"),
    ("pretrain encoder-demo vocab_size=64", "did you mean tokenizer.vocab_size?"),
    ("pretrain encoder-demo model.rope_parameters.factor=2", "did you mean model.overrides.rope_parameters?"),
    ("distill encoder-distilled general.student.path=run", "did you mean student.path?"),
    ("distill encoder-distilled general.student.depth=3", "did you mean student?"),
    ("distill task-distilled training.learning_rate=1e-4", "did you mean task.training.learning_rate?"),
    ("finetune sst2 device=cuda", "CUDA_VISIBLE_DEVICES"),
    ("fewshot copa prompting.device=cuda", "CUDA_VISIBLE_DEVICES"),
    ("pretrain encoder-demo training.gpus=2", "accelerate launch"),
    ("finetune sst2 learning_rate=1e-4", "did you mean training.learning_rate?"),
    ("finetune sst2 training.optimizer.learning_rate=1e-4", "did you mean training.learning_rate?"),
    ("finetune sst2 training.steps=100", "unknown key; training has epochs, batch_size,"),
    ("pretrain encoder-demo learning_rate=1e-4", "did you mean training.optimizer.learning_rate?"),
    ("distill encoder-distilled learning_rate=1", "did you mean general.training.optimizer.learning_rate?"),
    ("distill task-distilled learning_rate=1e-4", "did you mean task.training.learning_rate?"),
    (
        "finetune text-classification data.train=reviews.csv",
        "runs/encoder-demo/model does not exist yet: run `tercet pretrain encoder-demo` first, or set "
        "model.path=sentence-transformers/all-MiniLM-L6-v2",
    ),
    ("pretrain adapt-decoder corpus.train=text.txt corpus.validation=text.txt",
     "run `tercet pretrain decoder-english` first, or set model.path=HuggingFaceTB/SmolLM-135M"),
    ("pretrain encoder-demo corpus.train=txet.txt", "corpus txet.txt does not exist: did you mean text.txt?"),
    ("pretrain encoder-demo corpus.train=empty.txt", "corpus empty.txt has no text: give a file"),
    ('pretrain encoder-demo corpus.train=[{"path":"text.txt","share":3},rows.csv]',
     "others none: write {path: NAME} for each NAME, or list paths alone"),
    ("fewshot copa --model runs/decoder-demo/model", "run `tercet pretrain decoder-demo` first"),
    ("predict runs/sst2/model rows.csv", "run `tercet finetune sst2` first"),
    ("doctor runs/demo/encoder/model", "run `tercet demo` first"),
    ("push runs/encoder-demo me/encoder", "run `tercet pretrain encoder-demo` first"),
    ("play runs/encoder-demo/model", "run `tercet pretrain encoder-demo` first"),
    ("play no/such-folder/here", "no/such-folder/here does not exist: check the path"),
    ("recipes fintune", "unknown kind or name 'fintune'; did you mean finetune?"),
    ("recipes decoder-dmo", "unknown kind or name 'decoder-dmo'; did you mean decoder-demo?"),
    ("recipes things",
     "known: pretrain, prepare, finetune, distill, fewshot, presets, and the names in them"),
    ("prepare encoder-demo", "is a pretraining recipe: run `tercet pretrain encoder-demo`"),
    ("prepare prepare-text",
     "runs/decoder-demo/tokenizer does not exist yet: run `tercet pretrain decoder-demo`"),
    ("prepare prepare-text workers=0", "workers = 0: must be greater than or equal to 1"),
    ("pretrain encoder-demo training.steps=-3", "training.steps = -3: must be greater than 0"),
    ("pretrain encoder-demo objective.kind=mlm", 'objective.kind = "mlm": must be one of'),
    ("pretrain encoder-demo model.preset=encodr-tiny", "did you mean encoder-tiny"),
    ("pretrain encoder-demo model.overrides.hiden_size=8", "did you mean hidden_size"),
    ("pretrain encoder-demo model.overrides.hidden_size=wide",
     'model.overrides.hidden_size = "wide": must be a valid integer'),
    ("pretrain encoder-demo model.overrides.hidden_act=gelou", "did you mean gelu?"),
    ("pretrain encoder-demo model.preset=decoder-tiny",
     "model.preset decoder-tiny is a tercet_decoder, but masked_language_modeling trains a tercet_encoder"),
    ("predict me/nothing -", "me/nothing is not a folder, and cannot be loaded from the Hub"),
    ("doctor nothing", "nothing is not a folder, and cannot be loaded from the Hub"),
    ("convert nothing --to encoder --output mine",
     "nothing is not a folder, and cannot be loaded from the Hub"),
    ("verify-resume encoder-demo corpus.train=none.txt", "corpus none.txt does not exist"),
    ("tokenizer encoder-demo tokenizer.vocab_size=1", "must be greater than or equal to 8"),
    ("finetune chat training.epochs=none", 'training.epochs = "none": must be a valid number'),
    ("distill two-step task.temperature=-1", "task.temperature = -1: must be greater than 0"),
    ("fewshot copa prompting.num_fewshot=some", 'prompting.num_fewshot = "some": must be a list in brackets'),
    ("fewshot copa data.test=nowhere/rows.jsonl", "nowhere/rows.jsonl does not exist: name one"),
]  # fmt: skip

WRONG_ROWS = [
    ("finetune text-classification model.path=m data.train=rows.csv task.label=lable", "(text, label)"),
    ("finetune text-classification model.path=m data.train=row.csv",
     "row.csv does not exist: did you mean rows.csv?"),
    ("finetune text-classification model.path=m data.train=rows.csv data.validation=rows.jsonl",
     "rows.jsonl has no column 'label': name one of its columns (text, stars) in task.label"),
    ("finetune text-classification model.path=runs/mine data.train=rows.csv", "did you mean runs/mime?"),
    ("finetune text-classification model.path=m model.tagger.beside=[m,runs/mine] data.train=rows.csv",
     "runs/mine does not exist: did you mean runs/mime?"),
    ("predict runs/mine rows.csv", "runs/mine does not exist: did you mean runs/mime?"),
    ("predict run/finetuned row.csv", "row.csv does not exist: did you mean rows.csv?"),
    ("predict run/finetuned rows.csv",
     "rows.csv has no column 'review': give one of its columns (text, label)"),
    ("predict runs/mime rows.csv", "runs/mime has no task.json, so it was not made by tercet finetune"),
    ("distill task-distilled task.teacher=runs/mime task.data.train=rows.csv",
     "runs/mime has no task.json, so it was not made by tercet finetune"),
    ("distill task-distilled task.teacher=run/finetuned task.data.train=rows.csv",
     "rows.csv has no column 'review': give one of its columns (text, label)"),
    ("fewshot prompts.yaml --model run/model",
     "rows.csv has no column 'txet': name one of its columns (text, label) in task.context"),
    ("fewshot prompts.yaml --model run/model task.context=a{{",
     "task.context = 'a{{' is not a valid template"),
    ("embed runs/mime row.txt", "row.txt does not exist: name one that ends in .txt, .text, .jsonl,"),
    ("finetune text-classification model.path=m data.train=row.csv --explain",
     "row.csv does not exist: did you mean rows.csv?"),
    ("export run/model mine --int8", "--int8 is about graphs of ONNX: add --onnx"),
    ("predict rows.csv rows.csv", "rows.csv is a file: name its folder"),
    ("export taken mine", "taken is not a model (it has no config.json): name a folder that save_pretrained"),
    ("doctor run", "run is not a model (it has no config.json): did you mean run/model?"),
    ("play taken", "taken is not a model (it has no config.json)"),
    ("push nothing me/model", "nothing does not exist: name the folder of a run, or of a model"),
    ("convert run/model --to encoder --output mine --text none.txt", "--text none.txt is no file"),
    ("import runs/mime taken", "taken is not empty: choose another folder, or --overwrite"),
    ("convert run/model --to encoder --output rows.csv", "rows.csv is a file: name a folder"),
    ("finetune text-classification model.path=taken data.train=rows.csv",
     "taken is not a model (it has no config.json): name a folder that save_pretrained wrote"),
    ("finetune text-classification model.path=me/nothing data.train=rows.csv",
     "me/nothing is not a folder, and cannot be loaded from the Hub"),
    ("pretrain encoder-demo corpus.train=binary.txt", "binary.txt, line 1: byte 0xff is not UTF-8; convert"),
    ("pretrain encoder-demo corpus.train=plain.txt.gz", "plain.txt.gz, line 1: cannot be read from here on"),
    ("tokenizer encoder-demo corpus.train=broken.jsonl", "broken.jsonl, line 1: not valid JSON"),
    ("finetune text-classification model.path=m data.train=https://a.b/rows.csv",
     "https://a.b/rows.csv lies elsewhere: download it, and name the file"),
    ("pretrain encoder-demo output=taken", "output taken holds mine.txt, which was not written by a run"),
    ("finetune trec model.path=m data.train=rows.csv data.test=rows.csv output=taken/mine.txt",
     "which is a file"),
]  # fmt: skip


DAMAGED = [
    (f"finetune text-classification model.path=run/model data.train={table}", message)
    for table, message in (
        ("rows.csv", "data.train: all labels are 'a': there is nothing to learn"),
        ("header.csv", "header.csv has no rows: name one that has some in data.train"),
        ("utf16.csv", "utf16.csv, line 1: cannot be read from here on (it is UTF-16, not UTF-8"),
        ("quote.csv", "quote.csv, line 3: not valid CSV (unexpected end of data): close the quote, write"),
    )
]
DAMAGED += [
    (
        "distill task-distilled task.teacher=run/finetuned task.data.train=reviews.csv",
        "reviews.csv has no rows: name one that has some in task.data.train",
    )
]
"""Tables that are read before torch is imported."""

HEAVY = ["torch", "transformers", "accelerate", "datasets"]
"""Modules whose import takes a second or more."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Work in a folder without runs."""
    monkeypatch.chdir(tmp_path)


PROGRAM = """
import contextlib, io, json, sys
from tercet.__main__ import main
from tercet.checks import check_recipe
from tercet.configs.recipe import recipe_folders
from tercet.configs.schema import FILE
from tercet.kinds import command_of
heavy, commands = map(json.loads, sys.argv[1:])
told, planned = [], [name for name in sorted(recipe_folders()) if command_of(name) == "pretrain"]
for command in commands:
    with contextlib.redirect_stderr(io.StringIO()) as written:
        code = main(command.split())
    told.append([code, written.getvalue(), sorted({*heavy} & set(sys.modules))])
for name in planned:
    try:
        check_recipe("plan", name)
    except FileNotFoundError as error:
        assert "does not exist yet: run" in str(error), error  # what another command makes
print(json.dumps({"told": told, "planned": planned}))
"""
"""Carries out commands without torch, then checks every recipe that can be planned."""

MOST_SECONDS = 0.6
"""Processor time in which a wrong key or value is answered, from the start of Python."""


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory):
    """Carry out all commands that are wrong; their codes and messages, and what is there afterwards."""
    folder = tmp_path_factory.mktemp("early")
    (folder / "rows.csv").write_text("text,label\ngood,a\n")
    (folder / "rows.jsonl").write_text('{"text": "good"}\n{"text": "bad", "stars": 1}\n')
    (folder / "text.txt").write_text("A text.\n")
    (folder / "empty.txt").touch()
    (folder / "binary.txt").write_bytes(b"\xffno text")
    (folder / "plain.txt.gz").write_text("A text.\n")
    (folder / "broken.jsonl").write_text('{"text": \n')
    for model in ("runs/mime", "run/model", "run/finetuned"):
        (folder / model).mkdir(parents=True)
        (folder / model / "config.json").write_text("{}")
    task = {"kind": "classification", "texts": ["review"]}
    (folder / "run" / "finetuned" / "task.json").write_text(json.dumps({"task": task, "facts": {}}))
    (folder / "taken").mkdir()
    (folder / "taken" / "mine.txt").touch()
    (folder / "header.csv").write_text("text,label\n")
    (folder / "reviews.csv").write_text("review,label\n")
    prompts = {"kind": "completion", "context": "{{ txet }}", "answer": "{{ label }}"}
    recipe = {"task": prompts, "data": {"test": "rows.csv"}, "output": "asked"}
    (folder / "prompts.yaml").write_text(json.dumps(recipe))
    (folder / "utf16.csv").write_text("text,label\ngood,a\n", encoding="utf-16")
    (folder / "quote.csv").write_text('text,label\ngood,a\n"bad,b\n')
    commands = [command for command, _ in WRONG + WRONG_ROWS + DAMAGED]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(HEAVY), json.dumps(commands)],
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    return said | {"told": dict(zip(commands, said["told"], strict=True))}


@pytest.mark.parametrize(("command", "message"), WRONG + WRONG_ROWS, ids=lambda text: text[:60])
def test_the_remedy_is_told_in_a_line_without_torch(command, message, without_torch):
    code, said, imported = without_torch["told"][command]
    assert message in said
    assert (code, said.count("\n"), imported) == (2, 1, [])


@pytest.mark.parametrize(("command", "message"), DAMAGED, ids=lambda text: text[-20:])
def test_a_small_table_is_read_without_torch(command, message, without_torch):
    code, said, imported = without_torch["told"][command]
    assert message in said
    assert (code, said.count("\n"), imported) == (2, 1, ["datasets"])


@pytest.mark.parametrize("command", [WRONG[1][0], "pretrain encoder-demo objective.kind=mlm"])
def test_a_wrong_key_or_value_is_answered_at_once(command):
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "tercet", *command.split()], capture_output=True, check=False
    )
    after = os.times()
    assert done.returncode == 2
    spent = (after.children_user + after.children_system) - (before.children_user + before.children_system)
    assert spent < MOST_SECONDS


def test_a_file_of_which_a_line_cannot_be_read_is_left_to_the_command(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "good"}\n{"label": "a"}\n')
    with pytest.raises(ValueError, match=r"no column 'lable': give one of its columns \(text, label\)"):
        require_columns_early(str(file), ["text", "lable"])
    file.write_text('{"text": "good"}\nno JSON\n{"label": "a"}\n')
    require_columns_early(str(file), ["text", "lable"])


def test_a_long_document_is_left_to_the_command(tmp_path):
    file = tmp_path / "long.txt"
    file.write_text("a long line\n" * 10_000 + "\n")
    require_text_early(file)
    file.write_bytes(b"\xff" + b"a" * 10)
    with pytest.raises(ValueError, match="byte 0xff is not UTF-8"):
        require_text_early(file)


def test_an_option_that_is_a_key_is_answered_with_the_override(capsys):
    with pytest.raises(SystemExit):
        main(["pretrain", "encoder-demo", "--learning-rate=1e-4"])
    assert "written without dashes, as in training.optimizer.learning_rate=..." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["predict", "runs/mine/model", "rows.csv", "--device", "cuda"])
    assert "CUDA_VISIBLE_DEVICES=1 chooses which" in capsys.readouterr().err


def test_a_file_of_another_kind_is_named(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("{model: {path: m}, task: {kind: classification}, data: {train: x}, output: o}")
    assert main(["pretrain", str(file)]) == 2
    assert f"is a fine-tuning recipe: run `tercet finetune {file}`" in capsys.readouterr().err


def test_a_path_that_exists_and_one_of_nobody_are_left_to_the_command(tmp_path, capsys):
    (tmp_path / "runs" / "sst2" / "model").mkdir(parents=True)
    (tmp_path / "rows.csv").touch()
    assert main(["predict", "runs/sst2/model", "rows.csv"]) == 2
    assert "first" not in capsys.readouterr().err
    assert main(["predict", "runs/mine/model", "rows.csv"]) == 2
    assert "runs/mine/model does not exist: check the path" in capsys.readouterr().err
    (tmp_path / "runs" / "mine").mkdir()
    (tmp_path / "runs" / "mine" / "recipe.yaml").touch()
    assert main(["doctor", "runs/mine/model"]) == 2
    assert "its run has not ended: continue it with --resume" in capsys.readouterr().err
    assert main(["predict", "mine", "rows.csv"]) == 2
    assert "mine is not a folder, and cannot be loaded from the Hub" in capsys.readouterr().err


def test_plans_of_shipped_recipes_need_no_text(without_torch):
    assert len(without_torch["planned"]) > 20


def test_every_shipped_recipe_has_a_command():
    assert {command_of(name) for name in recipe_folders()} == set(KINDS)


def test_listing_can_be_of_one_kind_and_is_uncut_when_piped(capsys):
    assert main(["recipes", "distill"]) == 0
    listed = capsys.readouterr().out
    assert "task-distilled" in listed
    assert "encoder-demo " not in listed
    assert " ..." not in listed


def test_the_recipes_are_one_screen_with_every_name(capsys):
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines[:-1])) <= 100
    names = [name for line in lines if line.startswith("  ") for name in line.strip(" ,").split(", ")]
    assert sorted(names) == sorted(recipe_folders())


def test_a_recipe_is_listed_in_a_line_and_printed_whole_by_its_name(capsys, tmp_path):
    assert main(["recipes", "--all"]) == 0
    named = {*recipe_folders(), *preset_names()}
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert {*lines} == named
    assert len(lines) == len(recipe_folders()) + len(preset_names())
    assert main(["recipes", "decoder-demo"]) == 0
    (tmp_path / "mine.yaml").write_text(capsys.readouterr().out)
    assert main(["pretrain", "decoder-demo", "--explain"]) == 0
    (tmp_path / "all.yaml").write_text(explained := capsys.readouterr().out)
    names = ("mine.yaml", "all.yaml", "decoder-demo")
    recipes = [load_recipe(KINDS["pretrain"].recipe, name) for name in names]
    assert recipes[0] == recipes[1] == recipes[2]
    for text in ((tmp_path / "mine.yaml").read_text(), explained):
        assert text.startswith(f"# yaml-language-server: $schema={FILE}\n")
    assert explained.count(":") > len(KINDS["pretrain"].schema.names) * 10
    assert main(["recipes", "encoder-tiny"]) == 0
    assert "model_type: tercet_encoder" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tercet pre", {"prepare", "pretrain", "predict"}),
        ("tercet pretrain encoder-eng", {"encoder-english"}),
        ("tercet distill two-step task.tra", {"task.training."}),
        ("tercet pretrain encoder-demo training.optimizer.le", {"training.optimizer.learning_rate="}),
    ],
)
def test_shells_complete_commands_recipes_and_keys(line, expected, tmp_path):
    pytest.importorskip("argcomplete", reason="the extra `completion` is not installed")
    answer = tmp_path / "answer"
    asking = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    asking |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_IFS": "\n"}
    subprocess.run([sys.executable, "-m", "tercet"], env=os.environ | asking, check=False)
    assert {word.strip() for word in answer.read_text().split("\n")} == expected
