"""Healthy models pass every examination that applies to them; the command says so, and changes nothing."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tercet.__main__ import main
from tercet.doctor.diagnosis import diagnose, examine, title
from tercet.doctor.examinations import BEHAVIOUR, SAVING, TOKENIZER, WEIGHTS

ROOT = Path(__file__).parents[2]
EXAMINATIONS = [title(examination) for examination in (*WEIGHTS, *TOKENIZER, *BEHAVIOUR, *SAVING)]
JUDGE = {"causality", "cache", "tied weights"}
"""What cannot be examined in an encoder that judges whole texts."""

LABELS = {"cache", "tied weights"}
"""What cannot be examined where tokens get labels."""

VOID = {
    "encoder": {"cache"},
    "decoder": set(),
    "seq2seq": set(),
    "pretraining": {"cache"},
    "next_sentence": JUDGE,
    "answers": LABELS,
    "choices": JUDGE,
    "decoder_choices": JUDGE,
    "seq2seq_choices": {"causality", "cache"},
    "token_labels": LABELS,
    "seq2seq_answers": {"cache"},
    "seq2seq_token_labels": {"cache"},
    "bert": {"cache", "packed documents"},
    "bert_answers": LABELS | {"packed documents"},
    "bert_choices": JUDGE | {"left padding", "packed documents"},
    "bert_token_labels": LABELS | {"packed documents"},
    "bert_classifier": JUDGE | {"left padding", "packed documents"},
    "gpt2": set(),
    "gpt2_token_labels": LABELS,
    "llama": {"tied weights"},
    "bart": {"left padding", "packed documents"},
    "t5": {"longest input", "packed documents"},
    "bart_answers": {"left padding", "packed documents", "cache"},
}
"""What does not apply to each kind of model."""


@pytest.mark.parametrize("kind", VOID)
def test_healthy_models_pass_whatever_applies(kind, folder_of):
    diagnosis = diagnose(str(folder_of(kind)))
    verdicts = {name: finding.verdict for name, finding in diagnosis.findings.items()}
    assert verdicts == {name: "not applicable" if name in VOID[kind] else "ok" for name in EXAMINATIONS}
    assert diagnosis.is_healthy


@pytest.mark.parametrize(
    ("kind", "void"),
    [
        ("seq2seq_labels", {"causality", "cache"}),
        ("bart_labels", {"left padding", "causality", "packed documents", "cache"}),
    ],
)
def test_healthy_classifiers_that_read_twice_pass_whatever_applies(kind, void, examined_model_of):
    verdicts = {name: finding.verdict for name, finding in examine(examined_model_of(kind)).findings.items()}
    assert verdicts == {name: "not applicable" if name in void else "ok" for name in EXAMINATIONS}


@pytest.mark.parametrize("kind", ["choices", "bart_answers", "token_labels"])
def test_whatever_is_not_examined_says_why(kind, folder_of):
    for finding in diagnose(str(folder_of(kind))).findings.values():
        assert finding.verdict != "not applicable" or len(finding.measured.split()) > 3


def test_a_model_without_a_tokenizer_is_examined(folder_of):
    folder = folder_of("decoder")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    findings = diagnose(str(folder)).findings
    void = {name for name, finding in findings.items() if finding.verdict == "not applicable"}
    assert void == {title(examination) for examination in TOKENIZER}


def test_models_in_half_precision_are_compared_in_float32(folder_of, complaints):
    from transformers import AutoModelForCausalLM

    folder = folder_of("decoder")
    AutoModelForCausalLM.from_pretrained(folder).bfloat16().save_pretrained(folder)
    assert not complaints(folder)


def test_the_command_prints_a_table_and_changes_nothing(folder_of, capsys):
    folder = folder_of("seq2seq")
    before = {file: sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*")}
    capsys.readouterr()
    assert main(["doctor", str(folder)]) == 0
    printed = capsys.readouterr()
    lines = [line for line in printed.out.splitlines() if not line.startswith("---")]
    first, *rows, last = lines
    assert first.startswith(f"{folder}: TercetSeq2SeqForConditionalGeneration, seq2seq, ")
    assert [row[:20].strip() for row in rows] == EXAMINATIONS
    assert last == f"{len(EXAMINATIONS)} ok, 0 warning, 0 failed, 0 not applicable"
    assert "tolerance 1e-04" in printed.out
    assert not printed.err
    assert {file: sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*")} == before


def test_a_failure_is_exit_code_1_with_its_remedy(folder_of, capsys):
    folder = folder_of("bert", tokenizer={"mask_token": None})
    with pytest.raises(SystemExit) as exit:
        main(["doctor", str(folder)])
    assert exit.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    (row,) = [number for number, line in enumerate(lines) if line.startswith("needed tokens       failed  ")]
    assert lines[row + 1].strip().startswith("-> set tokenizer.mask_token")


def test_a_warning_is_exit_code_0(folder_of, capsys):
    assert main(["doctor", str(folder_of("llama", tokenizer={"model_max_length": None}))]) == 0
    assert ", 1 warning, 0 failed, " in capsys.readouterr().out


def test_findings_are_printed_for_other_programs(folder_of, capsys):
    folder = folder_of("decoder", tokenizer={"model_max_length": 64})
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["doctor", str(folder), "--json"])
    told = json.loads(capsys.readouterr().out)
    findings = {finding["name"]: finding for finding in told.pop("findings")}
    assert told == {
        "model": str(folder),
        "architecture": "TercetDecoderForCausalLM",
        "member": "decoder",
        "is_healthy": False,
    }
    assert list(findings) == EXAMINATIONS
    assert findings["longest input"] == {
        "name": "longest input",
        "verdict": "failed",
        "measured": "texts are truncated to 64 tokens, the model has 32 positions",
        "remedy": "tokenizer.model_max_length = 32",
    }


def test_the_documentation_names_every_examination():
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")][
        1:
    ] == EXAMINATIONS
