"""Healthy models pass every examination that applies to them; the command says so, and changes nothing."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tercet.__main__ import main
from tercet.tools.doctor.diagnosis import diagnose
from tercet.tools.doctor.examinations import EXAMINATIONS

ROOT = Path(__file__).parents[3]
NAMES = [examination.name for examination in EXAMINATIONS]
STOCK = {"packed documents"}
VOID = {
    "encoder": set(),
    "decoder": {"mask token"},
    "seq2seq": {"mask token"},
    "answers": {"mask token", "tied weights"},
    "bert": STOCK,
    "bert_classifier": STOCK | {"mask token", "tied weights"},
    "roberta": STOCK,
    "gpt2": STOCK | {"mask token"},
    "llama": STOCK | {"mask token", "tied weights"},
    "bart": STOCK | {"mask token", "left padding"},
    "t5": STOCK | {"mask token", "left padding", "tied weights", "longest input"},
}
"""What does not apply to each kind of model."""


@pytest.mark.parametrize("kind", VOID)
def test_healthy_models_pass_whatever_applies(kind, folder_of):
    diagnosis = diagnose(str(folder_of(kind)))
    verdicts = {name: finding.verdict for name, finding in diagnosis.findings.items()}
    assert verdicts == {name: "not applicable" if name in VOID[kind] else "ok" for name in NAMES}
    assert diagnosis.is_healthy


def test_a_model_without_a_tokenizer_is_examined(folder_of):
    folder = folder_of("decoder")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    findings = diagnose(str(folder)).findings
    void = {name for name, finding in findings.items() if finding.verdict == "not applicable"}
    assert void == {each.name for each in EXAMINATIONS if each.needs == "tokenizer"}


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
    assert [row[:20].strip() for row in rows] == NAMES
    assert last == f"{len(NAMES) - 1} ok, 0 warning, 0 failed, 1 not applicable"
    assert "tolerance 1e-04" in printed.out
    assert not printed.err
    assert {file: sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*")} == before


def test_a_failure_is_exit_code_1_with_its_remedy(folder_of, capsys):
    folder = folder_of("bert", tokenizer={"mask_token": None})
    with pytest.raises(SystemExit) as exit:
        main(["doctor", str(folder)])
    assert exit.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    (row,) = [number for number, line in enumerate(lines) if line.startswith("mask token          failed  ")]
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
    assert list(findings) == NAMES
    assert findings["longest input"] == {
        "name": "longest input",
        "verdict": "failed",
        "measured": "texts are truncated to 64 tokens, the model has 32 positions",
        "remedy": "tokenizer.model_max_length = 32",
    }


def test_the_documentation_has_the_table():
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = [
        tuple(map(str.strip, line.split("|")[1:4])) for line in page.splitlines() if line.startswith("| ")
    ]
    assert rows[1:] == [(each.name, each.asks, each.severity) for each in EXAMINATIONS]
