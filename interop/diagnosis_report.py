"""A diagnosis as a table for the terminal, and as JSON for other programs."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from textwrap import wrap
from typing import get_args

from .attention_drawing import draw_attention
from .doctor import Diagnosis
from .finding import Finding, Verdict

WIDTH = 110
NAME_WIDTH = 20
VERDICT_WIDTH = 16
RULE = "-" * WIDTH


def report_diagnosis(diagnosis: Diagnosis) -> str:
    """Lay a diagnosis out: who was examined, every finding with its remedy, what tokens see, a summary."""
    findings = diagnosis.findings.items()
    drawings = draw_attention(diagnosis.examined.model)
    return "\n".join(
        [
            about(diagnosis),
            RULE,
            *(line for name, finding in findings for line in finding_lines(name, finding)),
            RULE,
            *(line for drawing in drawings for line in (*drawing.lines(), RULE)),
            summary(diagnosis),
        ]
    )


def about(diagnosis: Diagnosis) -> str:
    """Say which model was examined."""
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
            "attention": [asdict(drawing) for drawing in draw_attention(examined.model)],
        },
        indent=2,
    )
