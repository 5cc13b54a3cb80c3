"""The doctor: examine any model in the form of transformers, and say what is wrong with it and what helps.

An examination is a function that returns a finding. Its name is what the table shows, its docstring what must
hold. Models are examined as they are loaded, in float32; nothing is written to their folder. A diagnosis is a
table for the terminal, or JSON for other programs.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import get_args

from ..ground.messages import first_line, quietly
from .examinations import BEHAVIOUR, SAVING, TOKENIZER, WEIGHTS, finite_weights
from .examined_model import ExaminedModel, Finding, Verdict, load_examined_model
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

    Raises:
        ValueError: It cannot be loaded, as in `load_examined_model`.
    """
    with quietly():
        return examine(load_examined_model(model, trust_remote_code=trust_remote_code))


def examine(examined: ExaminedModel) -> Diagnosis:
    """Carry out every examination that applies."""
    findings = {title(examination): examination(examined) for examination in WEIGHTS}
    for examination in TOKENIZER:
        findings[title(examination)] = (
            Finding("not applicable", "there is no tokenizer")
            if examined.tokenizer is None
            else examination(examined, examined.tokenizer)
        )
    reader, is_finite = Reader(examined), findings[title(finite_weights)].verdict == "ok"
    for examination in (*BEHAVIOUR, *SAVING):
        findings[title(examination)] = (
            carry_out(examination, reader)
            if is_finite
            else Finding("not applicable", "weights that are not finite give nothing to compare")
        )
    return Diagnosis(examined, findings)


def title(examination: Callable[..., Finding]) -> str:
    """Name an examination."""
    return examination.__name__.replace("_", " ")


def carry_out(examination: Callable[[Reader], Finding], reader: Reader) -> Finding:
    """Carry out an examination that calls the model; a model that raises has failed it."""
    try:
        return examination(reader)
    except Exception as error:  # whatever a foreign model raises
        return Finding(
            "failed",
            f"the model raises {type(error).__name__}: {first_line(error)}",
            "do the same with the model, and follow the traceback",
        )


WIDTH = 110
NAME_WIDTH = 20
VERDICT_WIDTH = 16
RULE = "-" * WIDTH


def report_diagnosis(diagnosis: Diagnosis) -> str:
    """Lay a diagnosis out: who was examined, every finding with its remedy, a summary."""
    findings = diagnosis.findings.items()
    return "\n".join(
        [
            about(diagnosis),
            RULE,
            *(line for name, finding in findings for line in finding_lines(name, finding)),
            RULE,
            summary(diagnosis),
        ]
    )


def about(diagnosis: Diagnosis) -> str:
    """Describe which model was examined."""
    examined = diagnosis.examined
    size = examined.model.num_parameters()
    return f"{examined.name}: {type(examined.model).__name__}, {examined.member}, {size:,} parameters"


def finding_lines(name: str, finding: Finding) -> Iterator[str]:
    """Write a finding, folded into its column, and below it the remedy."""
    margin = " " * (NAME_WIDTH + VERDICT_WIDTH)
    yield from wrap(
        f"{name:<{NAME_WIDTH}}{finding.verdict:<{VERDICT_WIDTH}}{finding.measured}",
        WIDTH,
        subsequent_indent=margin,
        break_long_words=False,
    )
    if finding.remedy:
        yield from wrap(f"{margin}-> {finding.remedy}", WIDTH, subsequent_indent=f"{margin}   ")


def summary(diagnosis: Diagnosis) -> str:
    """Count the verdicts."""
    counts = Counter(finding.verdict for finding in diagnosis.findings.values())
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict))


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
