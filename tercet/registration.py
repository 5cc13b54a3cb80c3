"""Registering the models with transformers: not when Tercet is imported, but when one of them is looked up.

To import the models takes torch and transformers, and with them seconds. `import tercet` takes neither, and
the Auto classes load our models all the same:

    AutoModel.from_pretrained -> CONFIG_MAPPING["tercet_encoder"] -> OfferedConfigurations -> our models

Whatever loads a model by its folder asks transformers' table of configurations for its `model_type` first.
The table gets a dictionary that imports our models when one of our types is asked for. They then register
themselves, as they do whoever imports them.

Where a class is registered with `register_for_auto_class`, transformers saves and pushes the module of the
class with the model, and what that imports from its own folder. Ours lie in several folders: of them, the
code is written as `modeling/saved/remote_code.py` joins it.

A run of pretraining imports nothing that sends models to the Hub: that is put in its place here, too.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .modeling import NeuralConfig

CONFIGURATIONS = "transformers.models.auto.configuration_auto"
"""The module of transformers that has the table."""

MODELS = f"{__package__}.modeling"
"""Our models."""

REVISIONS = f"{__package__}.pretraining.revisions"
"""The module of a run that keeps its intermediate models."""

OURS = "tercet_"
"""How the types of our models begin."""


def register_when_asked() -> None:
    """Let transformers find our models from now on, whether it is imported already or later."""
    tasks = {CONFIGURATIONS: offer_configurations, MODELS: publish_classes, REVISIONS: offer_hub}
    for name in tasks.keys() & sys.modules.keys():
        tasks[name](sys.modules[name])
    sys.meta_path.insert(0, AfterImport(tasks))  # pyright: ignore[reportArgumentType]


class OfferedConfigurations(dict[str, Any]):
    """The configurations that transformers knows besides its own; ours are imported when one is asked for."""

    def __contains__(self, model_type: object) -> bool:
        is_ours = isinstance(model_type, str) and model_type.startswith(OURS)
        if is_ours and not super().__contains__(model_type):
            import_module(f"{MODELS}.registry").configuration_of(model_type)
        return super().__contains__(model_type)


def offer_configurations(configuration_auto: ModuleType) -> None:
    """Put a dictionary that imports our models in the place of transformers' table of further ones.

    Its name is private: where it is another, our models are imported at once. It stands here because
    `modeling/compatibility.py`, where such names belong, imports torch.
    """
    table = configuration_auto.CONFIG_MAPPING
    if isinstance(further := getattr(table, "_extra_content", None), dict):
        table._extra_content = OfferedConfigurations(further)
    else:
        import_module(MODELS)


def publish_classes(modeling: ModuleType) -> None:
    """Make `register_for_auto_class` of our classes write their code whenever they are saved or pushed.

    Classes that users derive from ours are copied, as ever.
    """
    configuration, model = modeling.NeuralConfig, modeling.NeuralPreTrainedModel
    registered: set[type] = set()
    usual_save = configuration.save_pretrained

    def save_pretrained(
        self: "NeuralConfig", save_directory: str | os.PathLike, *options: Any, **named: Any
    ) -> None:
        if type(self) in registered:
            write_code(self, Path(save_directory))
        usual_save(self, save_directory, *options, **named)

    def registering(usual: Callable[..., None]) -> Any:
        def register_for_auto_class(kind: Any, *auto_class: Any) -> None:
            if kind.__module__.startswith(f"{MODELS}."):
                registered.add(getattr(kind, "config_class", kind))
            else:
                usual(kind, *auto_class)

        return classmethod(register_for_auto_class)

    for owner in (configuration, model):
        usual = owner.register_for_auto_class
        setattr(owner, usual.__name__, registering(usual.__func__))
    setattr(configuration, usual_save.__name__, save_pretrained)


def offer_hub(revisions: ModuleType) -> None:
    """Let a run push its intermediate models, by a module that it does not import itself."""
    vars(revisions)["hub"] = lambda: import_module(f"{__package__}.tools.push.revisions")


def write_code(config: "NeuralConfig", folder: Path) -> None:
    """Write the code that a configuration needs into a folder, and name it in the configuration."""
    from .modeling.saved.remote_code import add_auto_map, code_of

    facts = add_auto_map(config.to_dict())
    config.auto_map = facts["auto_map"]
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in code_of(facts).items():
        (folder / name).write_text(text, encoding="utf-8")


class AfterImport:
    """Finds some modules as all others are found, and does something with each once it is imported.

    Args:
        tasks: What is done, by the names of the modules.
    """

    def __init__(self, tasks: Mapping[str, Callable[[ModuleType], None]]):
        self.tasks = tasks

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.tasks:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self.tasks[name](module)

            vars(spec.loader)["exec_module"] = exec_module
        return spec
