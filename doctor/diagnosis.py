"""The doctor: examine any model in the form of transformers, and say what is wrong with it and what helps.

An examination is a function that returns a finding. Its name is what the table shows, its docstring what must
hold. Models are examined as they are loaded, in float32; nothing is written to their folder. A diagnosis is a
table for the terminal, with a drawing of what a token sees, or JSON for other programs.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..ground.messages import first_line, quietly
from ..modeling.attention.patterns import AttentionPattern
from ..modeling.stack import TercetStack
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
            "attention": [asdict(drawing) for drawing in draw_attention(examined.model)],
        },
        indent=2,
    )


DRAWN_WIDTH = 32
"""Cells of a row, at most."""

LONGEST = 2048
"""Tokens of the text that is drawn, at most."""

NONE, SOME, ALL = ".", "+", "#"
LEGEND = f"{ALL} all pairs, {SOME} some, {NONE} none"


@dataclass(frozen=True)
class Drawing:
    """The map of one type of layers.

    Args:
        stack: The member whose stack they are in, such as "encoder".
        layer_type: As the configuration names it.
        layers: Their numbers, from 0.
        num_tokens: Length of the text.
        tokens_per_cell: Tokens on each side of a cell.
        rows: A character for each cell: see `LEGEND`.
    """

    stack: str
    layer_type: str
    layers: list[int]
    num_tokens: int
    tokens_per_cell: int
    rows: list[str]

    @property
    def title(self) -> str:
        """Name the layers that the map is of."""
        numbers = ", ".join(map(str, self.layers))
        return f"{self.stack}, {self.layer_type}, layer{'s' * (len(self.layers) > 1)} {numbers}"

    def lines(self) -> Iterator[str]:
        """Write the title, and the rows below it."""
        size = self.tokens_per_cell
        yield self.title
        yield f"{self.num_tokens} tokens, {size} to a cell; a row is what a token sees: {LEGEND}"
        yield from self.rows


def draw_attention(model: PreTrainedModel) -> list[Drawing]:
    """Draw each type of layers of each stack of a model; those of foreign models are not known."""
    stacks = [each for each in model.modules() if isinstance(each, TercetStack)]
    return [draw_layers(stack, kind, pattern) for stack in stacks for kind, pattern in stack.patterns.items()]


def draw_layers(stack: TercetStack, kind: str, pattern: AttentionPattern) -> Drawing:
    """Draw the map of one type of layers, in a text as long as the model reads, or `LONGEST`."""
    length = min(stack.config.max_position_embeddings, LONGEST)
    size = -(-length // DRAWN_WIDTH)
    layers = [number for number, each in enumerate(stack.config.types_of_layers) if each == kind]
    rows = ["".join(map(character, row)) for row in shares(pattern.map_of(length), size).tolist()]
    return Drawing(stack.config.model_type.removeprefix("tercet_"), kind, layers, length, size, rows)


def shares(allowed: Tensor, size: int) -> Tensor:
    """Return the share of pairs (T, T) that are allowed in each cell of `size` tokens."""
    return F.avg_pool2d(allowed[None].to(torch.float64), size, ceil_mode=True)[0]


def character(share: float) -> str:
    """Draw a cell by the share of its pairs that may attend."""
    return NONE if share == 0 else ALL if share == 1 else SOME
