"""`tercet import` and `tercet export`: folders in, folders out, and one clear line for whatever is wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from tercet.__main__ import main
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.stock.models import load_stock
from tercet.training.ownership import mark

pytestmark = pytest.mark.usefixtures("short_texts")


@pytest.fixture
def folder(stock, tokenizer, tmp_path: Path) -> Callable[..., Path]:
    """Save a stock model, and its tokenizer."""

    def save(name: str, max_shard_size: str = "50GB", **options) -> Path:
        path = tmp_path / name
        stock(name, **options).save_pretrained(path, max_shard_size=max_shard_size)
        tokenizer.save_pretrained(path)
        return path

    return save


def complaint(capsys, *arguments: object) -> str:
    """Run a command that must fail, and give the one line that it prints."""
    capsys.readouterr()  # what saving a model for the test has printed
    assert main([str(each) for each in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_model_in_many_files_goes_in_and_out_again(folder, tmp_path: Path, capsys) -> None:
    source = folder("GPT2LMHeadModel", "8KB")
    assert main(["import", str(source), str(tmp_path / "ours")]) == 0
    assert capsys.readouterr().out.startswith("GPT2LMHeadModel and TercetDecoderForCausalLM are equal.")
    assert main(["export", str(tmp_path / "ours"), str(tmp_path / "back")]) == 0
    ids = torch.arange(5, 20)[None]
    logits = [
        AutoModelForCausalLM.from_pretrained(path)(ids).logits
        for path in (source, tmp_path / "ours", tmp_path / "back")
    ]
    torch.testing.assert_close(logits[0], logits[1])
    torch.testing.assert_close(logits[0], logits[2])
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "gpt2"
    for path in (tmp_path / "ours", tmp_path / "back"):
        assert AutoTokenizer.from_pretrained(path)("a b.")["input_ids"] == [5, 31, 6, 33]
        assert json.loads((path / "certificate.json").read_text())["holds"] is True


@pytest.mark.parametrize("names", [("cls_token", "sep_token"), ()])
def test_an_export_names_tokens_of_its_tokenizer_alone(folder, tokenizer, tmp_path: Path, names) -> None:
    """ModernBERT's configuration assumes cls_token_id = 50281 where none is named."""
    for name in names:
        setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(5))
    source, ours, back = folder("ModernBertForMaskedLM"), tmp_path / "ours", tmp_path / "back"
    assert main(["import", str(source), str(ours)]) == 0
    assert main(["export", str(ours), str(back), "--to", "modernbert"]) == 0
    config = json.loads((back / "config.json").read_text())
    ids = {name: value for name, value in config.items() if name.endswith("_token_id")}
    assert all(value is None or value < config["vocab_size"] for value in ids.values())
    assert {name: config[f"{name}_id"] for name in names} == dict.fromkeys(names, 5)


@pytest.mark.parametrize(
    ("name", "named"), [("BertForPreTraining", ["BertForMaskedLM"]), ("BertForSequenceClassification", None)]
)
def test_head_that_takes_up_all_tensors_is_chosen_whatever_is_named(folder, name: str, named) -> None:
    source = folder(name)
    config = json.loads((source / "config.json").read_text()) | {"architectures": named}
    (source / "config.json").write_text(json.dumps(config))
    assert type(load_stock(Checkpoint.open(str(source)))).__name__ == name


def test_pooler_that_no_head_reads_is_left_behind(folder, stock) -> None:
    source = folder("BertForMaskedLM")
    tensors = load_file(source / "model.safetensors")
    tensors["bert.pooler.dense.weight"], tensors["bert.pooler.dense.bias"] = (
        torch.ones(32, 32),
        torch.ones(32),
    )
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    assert type(load_stock(Checkpoint.open(str(source)))).__name__ == "BertForMaskedLM"


@pytest.mark.parametrize("is_cut", [pytest.param(False, marks=pytest.mark.slow), True])
def test_written_tokenizer_cuts_and_pads_no_text(folder, tokenizer, tmp_path: Path, is_cut: bool) -> None:
    """Whoever reads `tokenizer.json` alone gets the whole of a text, whatever was asked of it before."""
    if is_cut:  # as several models of others are published
        tokenizer.backend_tokenizer.enable_truncation(5)
        tokenizer.backend_tokenizer.enable_padding(length=9)
    source, text = folder("GPT2LMHeadModel"), "a proof is a story " * 30
    whole = tokenizer(text)["input_ids"]
    ours, stock, encoder = (tmp_path / name for name in ("ours", "stock", "encoder"))
    assert main(["import", str(source), str(ours)]) == 0
    assert main(["export", str(ours), str(stock)]) == 0
    assert main(["convert", str(ours), "--to", "encoder", "--output", str(encoder)]) == 0
    for written in (ours, stock):
        alone = Tokenizer.from_file(str(written / "tokenizer.json"))
        assert (alone.truncation, alone.padding) == (None, None)
        assert alone.encode(text).ids == whole
    alone = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    assert (alone.truncation, alone.padding) == (None, None)


@pytest.mark.parametrize("name", ["BertModel", "RobertaModel"])
def test_model_that_was_built_without_a_pooler_comes_in(folder, tmp_path: Path, name: str) -> None:
    source = folder(name)
    tensors = load_file(source / "model.safetensors")
    kept = {key: tensor for key, tensor in tensors.items() if "pooler" not in key}
    assert len(kept) == len(tensors) - 2
    save_file(kept, source / "model.safetensors", {"format": "pt"})
    assert type(load_stock(Checkpoint.open(str(source)))).__name__ == name
    assert main(["import", str(source), str(tmp_path / "ours")]) == 0


def test_model_is_not_replaced_by_what_it_becomes(folder, capsys) -> None:
    source = folder("BertForMaskedLM")
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    complaint(capsys, "import", source, source, "--overwrite")
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


def test_output_in_use_is_refused(folder, tmp_path: Path, capsys) -> None:
    source, output = folder("BertForMaskedLM"), tmp_path / "ours"
    assert main(["import", str(source), str(output)]) == 0
    capsys.readouterr()
    assert complaint(capsys, "import", source, output) == (
        f"tercet import: {output} is not empty: choose another folder, or --overwrite"
    )
    assert main(["import", str(source), str(output), "--overwrite"]) == 0
    capsys.readouterr()
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "monday.txt").write_text("rain")
    line = complaint(capsys, "import", source, tmp_path / "diary", "--overwrite")
    assert "holds no model that tercet import, export or convert wrote" in line
    (output / "notes.txt").write_text("years of work")
    assert main(["import", str(source), str(output), "--overwrite"]) == 0
    assert (tmp_path / "ours.previous" / "notes.txt").read_text() == "years of work"
    assert type(AutoModelForMaskedLM.from_pretrained(output)).__name__ == "TercetEncoderForMaskedLM"


@pytest.mark.parametrize("command", ["import", "export"])
def test_a_run_is_not_replaced_by_a_model(tmp_path: Path, capsys, command: str) -> None:
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    mark(run)
    for name in ("recipe.yaml", "log.jsonl", "model/config.json", "model/certificate.json"):
        (run / name).write_text("{}")
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text('{"model_type": "bert"}')
    line = complaint(capsys, command, source, run, "--overwrite")
    assert f"{run} holds no model that tercet import, export or convert wrote" in line
    assert (run / "model" / "config.json").exists()


def test_model_is_not_replaced_by_what_is_made_of_it(folder, tmp_path: Path, capsys) -> None:
    output = tmp_path / "ours"
    assert main(["import", str(folder("BertForMaskedLM")), str(output)]) == 0
    (tmp_path / "link").symlink_to(output)
    before = sorted(output.rglob("*"))
    for name in ("ours", "link", "link/../ours"):
        line = complaint(capsys, "export", tmp_path / name, output, "--overwrite")
        assert "lies in the folder that this run writes" in line
        assert sorted(output.rglob("*")) == before


def test_link_stays_and_what_it_leads_to_is_replaced(folder, tmp_path: Path) -> None:
    source, output, link = folder("BertForMaskedLM"), tmp_path / "ours", tmp_path / "link"
    assert main(["import", str(source), str(output)]) == 0
    before = sorted(path.name for path in output.iterdir())
    link.symlink_to(output)
    assert main(["import", str(source), str(link), "--overwrite"]) == 0
    assert link.is_symlink()
    assert sorted(path.name for path in link.iterdir()) == before
    assert (tmp_path / "ours.previous" / "config.json").exists()


def test_folder_that_is_no_model_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    line = complaint(capsys, "import", tmp_path / "empty", tmp_path / "ours")
    assert line.startswith(
        f"tercet import: {tmp_path / 'empty'} is not a model (it has no config.json): name a "
    )


def test_unknown_architecture_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    line = complaint(capsys, "import", tmp_path, tmp_path / "ours")
    assert "'mamba' cannot be imported: supported architectures are bart, bert," in line


def test_model_of_ours_needs_no_import(folder, tmp_path: Path, capsys) -> None:
    main(["import", str(folder("BertModel")), str(tmp_path / "ours")])
    capsys.readouterr()
    line = complaint(capsys, "import", tmp_path / "ours", tmp_path / "again")
    assert "is a tercet_encoder already: load it with from_pretrained" in line


def test_stock_model_cannot_be_exported(folder, tmp_path: Path, capsys) -> None:
    line = complaint(capsys, "export", folder("BertModel"), tmp_path / "out")
    assert "is a bert: import it with tercet import first" in line


def test_pickled_weights_are_refused_with_the_safe_way(folder, tmp_path: Path, capsys) -> None:
    source = folder("BertModel")
    torch.save(load_file(source / "model.safetensors"), source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    line = complaint(capsys, "import", source, tmp_path / "ours")
    assert (
        "has its weights as a pickle (pytorch_model.bin), which may run arbitrary code when it is loaded"
        in line
    )
    assert "`BertModel.from_pretrained(" in line


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("pattern", "spoil", "told"),
    [
        ("*.safetensors", Path.unlink, "holds no weights (neither model.safetensors nor"),
        ("*.safetensors", shorten, "model.safetensors is damaged"),
        ("tokenizer.json", shorten, "the tokenizer in FOLDER cannot be loaded"),
    ],
)
def test_what_is_missing_or_damaged_is_told(folder, tmp_path: Path, capsys, pattern, spoil, told) -> None:
    source = folder("BertModel")
    spoil(next(source.glob(pattern)))
    assert told.replace("FOLDER", str(source)) in complaint(capsys, "import", source, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_missing_shard_is_told(folder, tmp_path: Path, capsys) -> None:
    source = folder("GPT2LMHeadModel", "8KB")
    shard = sorted(source.glob("model-*.safetensors"))[0]
    shard.unlink()
    assert shard.name in complaint(capsys, "import", source, tmp_path / "ours")


def test_tokenizer_that_does_not_fit_is_refused(folder, tmp_path: Path, capsys) -> None:
    source = folder("BertForMaskedLM", vocab_size=20)
    line = complaint(capsys, "import", source, tmp_path / "ours")
    assert "the tokenizer has ids below 35, but the model has embeddings for 20 only" in line


@pytest.mark.parametrize(
    ("text", "what"), [("{", "cannot be read"), ("[]", "is not a JSON object"), ("", "cannot")]
)
def test_a_damaged_way_to_write_is_not_lost_in_silence(folder, tmp_path: Path, capsys, text, what) -> None:
    source = folder("GPT2LMHeadModel")
    (source / "generation_config.json").write_text(text)
    for command in (["import", source, tmp_path / "ours"], ["doctor", source]):
        assert f"generation_config.json {what}" in complaint(capsys, *command)
    assert not (tmp_path / "ours").exists()
