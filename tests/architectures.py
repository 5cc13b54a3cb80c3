"""All members, registered, and the Transformers among them, each with the Auto classes that load it."""

from tercet.modeling import TercetPreTrainedModel
from tercet.modeling.registry import AUTO_CLASSES, CONFIGURATIONS, MEMBERS, import_member

for _member in (*MEMBERS, "recurrent"):
    import_member(_member)
__all__ = ["ARCHITECTURES", "AUTO_CLASSES", "CONFIGURATIONS", "LOADED"]

LOADED = [
    (auto_class, model)
    for auto_class, models in AUTO_CLASSES.items()
    for model in models
    if issubclass(model, TercetPreTrainedModel)
]
"""An Auto class, and a Transformer that it loads."""

ARCHITECTURES = sorted({model for _, model in LOADED}, key=repr)
"""Every such Transformer once."""
