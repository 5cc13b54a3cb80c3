"""Several models that learn together, as the one module that the engine trains."""

from torch import nn

from ..modeling import TercetConfig, TercetPreTrainedModel


class JointModel(nn.Module):
    """Models that share a step, and perhaps weights. Abstract: subclasses add the others and `forward`.

    A call of the whole computes whatever a step needs, since processes exchange gradients of what was called.

    Args:
        main: The model that a finished run leaves in its folder `model`; its configuration is that of all.
    """

    def __init__(self, main: TercetPreTrainedModel):
        super().__init__()
        self.config: TercetConfig = main.config
        self._no_split_modules = main._no_split_modules


def share_parameters(module: nn.Module, source: nn.Module, excluded: tuple[str, ...] = ()) -> None:
    """Let a module have the parameters of another one wherever they have the same names.

    Args:
        module: Gives up its own.
        source: Keeps its own.
        excluded: What the names of parameters begin with that stay apart.
    """
    shared = dict(source.named_parameters(remove_duplicate=False))
    for name, _ in list(module.named_parameters(remove_duplicate=False)):
        if name in shared and not name.startswith(excluded):
            owner, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(owner), leaf, shared[name])
