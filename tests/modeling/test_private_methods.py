"""What modeling/generation.py knows of transformers' private methods, and of which versions."""

import inspect

import transformers
from transformers import GenerationMixin

CHECKED_WITH = ("5.17.0", "5.23.0")
"""Versions of transformers for which this file and test_fast_generation.py have passed."""


def test_private_methods_of_transformers_are_asked_as_in_a_checked_version():
    """`generate` has no public way to say which call decodes: see `TercetGenerativeModel`."""
    assert transformers.__version__ in CHECKED_WITH, (
        f"modeling/generation.py overrides private methods of transformers, checked with {CHECKED_WITH}: "
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
