"""What modeling/ knows of transformers' private methods, and of which versions."""

import inspect
from importlib import import_module
from pathlib import Path

import transformers
from transformers import GenerationMixin, PreTrainedModel

import tercet.modeling

CHECKED_WITH = ("5.17.0", "5.23.0")
"""Versions of transformers for which this file and test_fast_generation.py have passed."""


OVERRIDDEN = {
    "_check_and_adjust_attn_implementation",
    "_init_weights",  # which is how models of other libraries say it, too
    "_prepare_cache_for_generation",
    "_valid_auto_compile_criteria",
}
"""Private methods of transformers that classes of modeling/ override."""


def test_no_other_private_methods_of_transformers_are_overridden():
    found = set()
    root = Path(tercet.modeling.__file__).parent
    for path in root.rglob("[!_]*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for kind in vars(import_module(f"tercet.modeling.{module}")).values():
            if not inspect.isclass(kind) or not kind.__module__.startswith("tercet.modeling"):
                continue
            theirs = [base for base in kind.__mro__ if base.__module__.startswith("transformers.")]
            found |= {
                name
                for name, value in vars(kind).items()
                if name.startswith("_") and not name.startswith("__") and inspect.isfunction(value)
                if any(name in vars(base) for base in theirs)
            }
    assert found == OVERRIDDEN


def test_the_attention_kernel_is_checked_by_the_method_of_a_checked_version():
    """`TercetPreTrainedModel` refuses kernels that take no bias, or no mask, where a model needs one."""
    call = "self._check_and_adjust_attn_implementation("
    assert call in inspect.getsource(PreTrainedModel.__init__)
    assert call in inspect.getsource(PreTrainedModel.set_attn_implementation)
    parameters = list(inspect.signature(PreTrainedModel._check_and_adjust_attn_implementation).parameters)
    assert parameters[:2] == ["self", "attn_implementation"]


def test_private_methods_of_transformers_are_called_as_in_a_checked_version():
    """`generate` has no public way to say which call decodes: see `TercetGenerativeModel`."""
    assert transformers.__version__ in CHECKED_WITH, (
        f"modeling/ overrides private methods of transformers, checked with {CHECKED_WITH}: "
        f"run both files with {transformers.__version__}, read GenerationMixin._sample, and add the version"
    )
    decoding = inspect.getsource(GenerationMixin._sample)
    assert "self.get_compiled_call(generation_config.compile_config)" in decoding
    assert "if self._valid_auto_compile_criteria(model_kwargs, generation_config)" in decoding
    assert "self._prepare_cache_for_generation(" in inspect.getsource(GenerationMixin.generate)
    for name in ("_valid_auto_compile_criteria", "_prepare_cache_for_generation"):
        theirs = list(inspect.signature(getattr(GenerationMixin, name)).parameters)
        assert theirs[:3] in (
            ["self", "model_kwargs", "generation_config"],
            ["self", "generation_config", "model_kwargs"],
        )
