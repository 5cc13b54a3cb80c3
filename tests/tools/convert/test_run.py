"""`tercet convert`: a folder in, a folder out that everything else reads, and what changed is said."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from tercet.__main__ import main
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling import TercetDecoderConfig, TercetDecoderForCausalLM, TercetEncoderConfig
from tercet.modeling import TercetEncoderForMaskedLM as Encoder
from tercet.tools.convert.prediction_change import Probe, answers, change_of_predictions, probe_of

from ...pretraining.conftest import unread_recipe
from ...pretraining_parts import model_of
from ...saved_weights import require_same
from ...word_level import word_level

TEXTS = ["the ship left the harbour", "nobody knew where it was bound", "bread needs flour and water"]


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    """Train a tokenizer as a run does."""
    return train_tokenizer(TEXTS * 5, "wordpiece", 120)


@pytest.fixture
def folder(tmp_path: Path, words):
    """Give the function that saves a small model of ours with its tokenizer."""

    def save(member: str, tokenizer=words, **fields) -> Path:
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
        sizes |= {"num_attention_heads": 4, "vocab_size": len(words), "max_position_embeddings": 32}
        torch.manual_seed(0)
        if member == "encoder":
            model = Encoder(TercetEncoderConfig(**sizes | fields))
        else:
            model = TercetDecoderForCausalLM(TercetDecoderConfig(**sizes | fields))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.3)
        model.save_pretrained(tmp_path / member)
        tokenizer.save_pretrained(tmp_path / member)
        return tmp_path / member

    return save


def run(*arguments: object) -> None:
    assert main(["convert", *map(str, arguments), "--debug"]) == 0


def test_a_decoder_becomes_an_encoder_that_pretraining_goes_on_with(folder, tmp_path, capsys, words):
    run(folder("decoder"), "--to", "encoder", "--output", tmp_path / "new")
    said = capsys.readouterr().out
    assert "-> TercetEncoderForMaskedLM" in said
    assert "| new | 0 | |" in said
    assert "perplexity of the next token" in said
    encoder = AutoModelForMaskedLM.from_pretrained(tmp_path / "new")
    assert AutoTokenizer.from_pretrained(tmp_path / "new")("the ship")["input_ids"][0] == words.cls_token_id
    card = (tmp_path / "new" / "README.md").read_text()
    assert said.strip() in card
    assert "AutoModelForMaskedLM.from_pretrained" in card
    assert "# decoder, read as an encoder" in card
    assert str(tmp_path) not in card
    recipe = unread_recipe("masked_language_modeling", {"path": str(tmp_path / "new")}, 16)
    model = model_of(recipe, words)
    require_same(model.state_dict(), encoder.state_dict())


def test_a_decoder_saved_to_be_read_in_both_directions_is_one_that_generates(folder, tmp_path):
    source = folder("decoder")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"architectures": ["TercetDecoderForMaskedLM"]}))
    run(source, "--to", "encoder", "--output", tmp_path / "new")
    facts = json.loads((tmp_path / "new" / "conversion.json").read_text())
    assert facts["new"] == facts["dropped"] == {}
    assert facts["changes"][0]["what"] == "next token"


def test_an_encoder_becomes_a_decoder_that_generates(folder, tmp_path):
    run(folder("encoder"), "--to", "decoder", "--output", tmp_path / "new")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
    inputs = tokenizer("the ship", return_tensors="pt")
    assert inputs["input_ids"].shape == (1, 2)  # nothing that would end the text
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "new")
    assert model.generate(**inputs, max_new_tokens=3, eos_token_id=None).shape == (1, 5)
    assert model.config.bos_token_id == tokenizer.cls_token_id
    assert tokenizer.padding_side == "left"


def test_two_become_a_seq2seq_that_generates(folder, tmp_path, capsys):
    run(folder("encoder"), "--decoder", folder("decoder"), "--to", "seq2seq", "--output", tmp_path / "new")
    said = capsys.readouterr().out
    assert re.search(r"hidden states of the encoder \| \d+ \| \| \| 0\.0% of their length", said)
    assert "cross_attention.q_proj.weight` (2 layers)" in said
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "new")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert model.generate(**tokenizer("the ship", return_tensors="pt"), max_new_tokens=3).shape[0] == 1
    assert model.config.decoder_start_token_id == tokenizer.cls_token_id


def test_a_mask_token_is_added_with_the_mean_of_all_vectors(folder, tmp_path):
    roles = {"pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = word_level([*roles.values(), *"abcdefgh"], split=pre_tokenizers.Whitespace(), **roles)
    (tmp_path / "probe.txt").write_text("a b c d\n\ne f g h")
    source = folder("decoder", tokenizer, vocab_size=10, tie_word_embeddings=False)
    arguments = ("--to", "encoder", "--output", tmp_path / "new", "--text", tmp_path / "probe.txt")
    run(source, *arguments)
    encoder, decoder = (
        AutoModelForMaskedLM.from_pretrained(tmp_path / "new"),
        AutoModelForCausalLM.from_pretrained(source),
    )
    assert AutoTokenizer.from_pretrained(tmp_path / "new").mask_token_id == 10
    for name in ("model.embeddings.embed_tokens.weight", "lm_head.weight"):
        before, after = decoder.get_parameter(name), encoder.get_parameter(name)
        assert torch.equal(after[:10], before)
        torch.testing.assert_close(after[10], before.mean(dim=0))
    facts = json.loads((tmp_path / "new" / "conversion.json").read_text())
    assert sum(facts["new"].values()) == 2 * 32
    assert facts["changes"][0]["size"] == 6  # all but the first token of each text


def test_perplexity_is_that_of_one_pass_through_a_decoder(folder, words):
    decoder = AutoModelForCausalLM.from_pretrained(folder("decoder")).eval()
    probe = probe_of(TEXTS, words, 32)
    change = change_of_predictions(decoder, decoder, "next token", probe)
    total, count = 0.0, 0
    for text in probe.texts:
        log_probabilities = decoder(text[None]).logits[0].log_softmax(-1)
        total -= float(log_probabilities[:-1].gather(-1, text[1:, None]).sum().detach())
        count += len(text) - 1
    assert change.size == count
    assert change.before == pytest.approx(math.exp(total / count), rel=1e-5)
    assert change.agreement == 1.0


@pytest.mark.parametrize(("question", "column"), [("next token", -1), ("masked token", 0)])
def test_an_encoder_answers_behind_a_mask(folder, words, question, column):
    encoder = AutoModelForMaskedLM.from_pretrained(folder("encoder")).eval()
    text = torch.arange(6, 12)
    found = answers(encoder, text, question, words.mask_token_id)
    hidden = text.clone()
    hidden[3] = words.mask_token_id
    expected = encoder(hidden[None]).logits[0, 3 + column].log_softmax(-1)
    torch.testing.assert_close(found[2], expected)


def test_a_question_that_needs_a_mask_is_refused_without_one(folder):
    encoder = AutoModelForMaskedLM.from_pretrained(folder("encoder"))
    probe = Probe([torch.arange(5, 9)], None)
    with pytest.raises(ValueError, match="needs a mask token: add one"):
        change_of_predictions(encoder, encoder, "masked token", probe)


def complaint(capsys, *arguments: object) -> str:
    capsys.readouterr()
    assert main(["convert", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ("decoder", "--to decoder", "is of the member 'decoder' already"),
        ("decoder", "--to encoder --text none.txt", "none.txt is no file"),
        ("decoder", "--to encoder --text empty.txt", "empty.txt has no text"),
        ("encoder", "--to seq2seq --decoder decoder", "have different vocabularies"),
        ("bare", "--to encoder", "has no tokenizer"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(
    source, arguments, message, folder, tmp_path, capsys, tokenizer, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder("encoder", tokenizer)
    bare = shutil.copytree(folder("decoder"), "bare")
    for file in Path(bare).glob("tokenizer*"):
        file.unlink()
    Path("empty.txt").write_text("\n\n")
    assert message in complaint(capsys, source, *arguments.split(), "--output", "new")
    assert not Path("new").exists()


def test_neither_source_is_overwritten(folder, tmp_path, capsys):
    source = folder("decoder")
    new = tmp_path / "new"
    run(source, "--to", "encoder", "--output", new)
    assert "is not empty" in complaint(capsys, source, "--to", "encoder", "--output", new)
    line = complaint(capsys, source, "--decoder", new, "--to", "seq2seq", "--output", new, "--overwrite")
    assert "the decoder is" in line
    run(source, "--to", "encoder", "--output", new, "--overwrite")
