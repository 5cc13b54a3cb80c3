"""`register_for_auto_class`: how `save_pretrained` and `push_to_hub` of transformers write code of models.

transformers copies the module of a class, and what it imports from its own folder. Ours lie in several
folders: of them, the code is written as `storage/remote_code.py` joins it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import modeling
from .modeling import NeuralConfig, NeuralPreTrainedModel


def publish_registered_classes() -> None:
    """Make `register_for_auto_class` of our classes write their code whenever they are saved or pushed.

    Classes that users derive from ours are copied, as ever.
    """
    registered: set[type] = set()
    usual_save = NeuralConfig.save_pretrained

    def save_pretrained(
        self: NeuralConfig, save_directory: str | os.PathLike, *options: Any, **named: Any
    ) -> None:
        if type(self) in registered:
            write_code(self, Path(save_directory))
        usual_save(self, save_directory, *options, **named)

    def registering(usual: Callable[..., None]) -> Any:
        def register_for_auto_class(kind: Any, *auto_class: Any) -> None:
            if kind.__module__.startswith(f"{modeling.__name__}."):
                registered.add(getattr(kind, "config_class", kind))
            else:
                usual(kind, *auto_class)

        return classmethod(register_for_auto_class)

    for owner in (NeuralConfig, NeuralPreTrainedModel):
        usual = owner.register_for_auto_class
        setattr(owner, usual.__name__, registering(usual.__func__))
    setattr(NeuralConfig, usual_save.__name__, save_pretrained)


def write_code(config: NeuralConfig, folder: Path) -> None:
    """Write the code that a configuration needs into a folder, and name it in the configuration."""
    from .storage.remote_code import add_auto_map, code_of

    facts = add_auto_map(config.to_dict())
    config.auto_map = facts["auto_map"]
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in code_of(facts).items():
        (folder / name).write_text(text, encoding="utf-8")
