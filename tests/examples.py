"""The programs of `examples/` as modules."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def load_example(name: str) -> ModuleType:
    """Load an example as a module."""
    spec = spec_from_file_location(name, Path(__file__).parents[1] / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
