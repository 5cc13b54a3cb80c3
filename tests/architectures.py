"""The Transformers of the family, each with the Auto classes that load it."""

from tercet.modeling import AUTO_CLASSES, TercetPreTrainedModel

LOADED = [
    (auto_class, model)
    for auto_class, models in AUTO_CLASSES.items()
    for model in models
    if issubclass(model, TercetPreTrainedModel)
]
"""An Auto class, and a Transformer that it loads."""

ARCHITECTURES = sorted({model for _, model in LOADED}, key=repr)
"""Every such Transformer once."""
