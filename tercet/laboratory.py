"""The studies of `lab/`: a checkout has them, an installed package does not."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
"""The checkout, if it is one."""


def studies(module: str) -> ModuleType:
    """Return a module of `lab/studies/`."""
    if not (ROOT / "lab" / "studies").is_dir():
        raise ValueError(
            "studies are part of Tercet's repository, not of the installed package: clone the repository, "
            "run `pip install -e .` in it, and repeat the command"
        )
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return import_module(f"lab.studies.{module}")


def study_completions(prefix: str, **_: object) -> list[str]:
    return [name for name in studies("study").all_studies() if name.startswith(prefix)]
