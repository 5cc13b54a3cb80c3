"""The doctor: examine any model in the form of transformers, and say what is wrong with it and what helps.

An examination is a function that returns a finding. Its name is what the table shows, its docstring what must
hold. Models are examined as they are loaded, in float32; nothing is written to their folder.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .admission import load_patient
from .behaviour_examinations import BEHAVIOUR
from .finding import Finding
from .messages import first_line, quietly
from .patient import Patient
from .reader import Reader
from .saving_examinations import SAVING
from .tokenizer_examinations import TOKENIZER
from .weight_examinations import WEIGHTS, finite_weights


@dataclass(frozen=True)
class Diagnosis:
    """What all examinations of a model have found, by their names."""

    patient: Patient
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
        ValueError: It cannot be loaded, as said in `load_patient`.
    """
    with quietly():
        return examine(load_patient(model, trust_remote_code=trust_remote_code))


def examine(patient: Patient) -> Diagnosis:
    """Carry out every examination that applies."""
    findings = {title(examination): examination(patient) for examination in WEIGHTS}
    for examination in TOKENIZER:
        findings[title(examination)] = (
            Finding("not applicable", "there is no tokenizer")
            if patient.tokenizer is None
            else examination(patient, patient.tokenizer)
        )
    reader, is_finite = Reader(patient), findings[title(finite_weights)].verdict == "ok"
    for examination in (*BEHAVIOUR, *SAVING):
        findings[title(examination)] = (
            examined(examination, reader)
            if is_finite
            else Finding("not applicable", "weights that are not finite give nothing to compare")
        )
    return Diagnosis(patient, findings)


def title(examination: Callable[..., Finding]) -> str:
    """Name an examination."""
    return examination.__name__.replace("_", " ")


def examined(examination: Callable[[Reader], Finding], reader: Reader) -> Finding:
    """Carry out an examination that calls the model; a model that raises has failed it."""
    try:
        return examination(reader)
    except Exception as error:  # whatever a foreign model raises
        return Finding(
            "failed",
            f"the model raises {type(error).__name__}: {first_line(error)}",
            "do the same with the model, and follow the traceback",
        )
