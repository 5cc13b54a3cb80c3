"""The doctor: examine any model in the form of transformers, and say what is wrong with it and what helps.

An examination is a function that returns a finding. Its name is what the table shows, its docstring what must
hold. Models are examined as they are loaded, in float32; nothing is written to their folder.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .admission import load_examined_model
from .behaviour_examinations import BEHAVIOUR
from .examined_model import ExaminedModel
from .finding import Finding
from .messages import first_line, quietly
from .reader import Reader
from .saving_examinations import SAVING
from .tokenizer_examinations import TOKENIZER
from .weight_examinations import WEIGHTS, finite_weights


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
