"""The doctor: examine any model in the form of transformers, and say what is wrong with it and what helps.

Models are examined as they are loaded, in float32; nothing is written to their folder. A diagnosis is a table
for the terminal, or JSON for other programs.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import get_args

from ...configs.messages import first_line, quietly
from ...modeling.saved.checkpoint import Checkpoint
from .examinations import EXAMINATIONS, Examination, Finding, Verdict
from .examined_model import ExaminedModel, load_examined_model
from .reader import Reader


@dataclass(frozen=True)
class Diagnosis:
    """What all examinations of a model have found, by their names."""

    examined: ExaminedModel
    findings: dict[str, Finding]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing failed; warnings are allowed."""
        return all(finding.verdict != "failed" for finding in self.findings.values())


def diagnose(model: str, *, trust_remote_code: bool = False) -> Diagnosis:
    """Examine a model.

    Args:
        model: Its folder, or its name on the Hub.
        trust_remote_code: Run the code that a model brings along.
    """
    with quietly():
        return examine(load_examined_model(Checkpoint.open(model, trust_remote_code=trust_remote_code)))


def examine(examined: ExaminedModel) -> Diagnosis:
    """Carry out every examination that applies."""
    reader, findings = Reader(examined), {}
    for examination in EXAMINATIONS:
        if examination.needs == "tokenizer" and examined.tokenizer is None:
            finding = Finding("not applicable", "there is no tokenizer")
        elif examination.needs == "numbers" and findings["finite weights"].verdict != "ok":
            finding = Finding("not applicable", "weights that are not finite give nothing to compare")
        else:
            finding = carry_out(examination, reader)
        findings[examination.name] = finding
    return Diagnosis(examined, findings)


def carry_out(examination: Examination, reader: Reader) -> Finding:
    """Carry out an examination; a model that raises has failed it."""
    try:
        finding = examination.answer(reader)
    except Exception as error:  # whatever a foreign model raises
        return Finding(
            "failed",
            f"the model raises {type(error).__name__}: {first_line(error)}",
            "do the same with the model, and follow the traceback",
        )
    return replace(finding, verdict=examination.severity) if finding.verdict == "failed" else finding


WIDTH = 110
NAME_WIDTH = 20
VERDICT_WIDTH = 16
RULE = "-" * WIDTH


def report_diagnosis(diagnosis: Diagnosis) -> str:
    """Lay a diagnosis out: who was examined, every finding with its remedy, a count of verdicts."""
    examined, findings = diagnosis.examined, diagnosis.findings
    size = examined.model.num_parameters()
    lines = [
        f"{examined.name}: {type(examined.model).__name__}, {examined.member}, {size:,} parameters",
        RULE,
    ]
    for name, finding in findings.items():
        lines.extend(finding_lines(name, finding))
    counts = Counter(finding.verdict for finding in findings.values())
    return "\n".join(
        [*lines, RULE, ", ".join(f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict))]
    )


def finding_lines(name: str, finding: Finding) -> Iterator[str]:
    """Write a finding, folded into its column, and below it the remedy."""
    margin = " " * (NAME_WIDTH + VERDICT_WIDTH)
    line = f"{name:<{NAME_WIDTH}}{finding.verdict:<{VERDICT_WIDTH}}{finding.measured}"
    yield from wrap(line, WIDTH, subsequent_indent=margin, break_long_words=False)
    if finding.remedy:
        yield from wrap(f"{margin}-> {finding.remedy}", WIDTH, subsequent_indent=f"{margin}   ")


def diagnosis_as_json(diagnosis: Diagnosis) -> str:
    """Write a diagnosis for other programs."""
    examined = diagnosis.examined
    return json.dumps(
        {
            "model": examined.name,
            "architecture": type(examined.model).__name__,
            "member": examined.member,
            "is_healthy": diagnosis.is_healthy,
            "findings": [{"name": name} | asdict(finding) for name, finding in diagnosis.findings.items()],
        },
        indent=2,
    )
