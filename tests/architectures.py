"""What each Auto class loads, of the members that are Transformers: others have tests of their own."""

from tercet.modeling import AUTO_CLASSES, TercetPreTrainedModel

TRANSFORMERS = {
    auto_class: [model for model in models if issubclass(model, TercetPreTrainedModel)]
    for auto_class, models in AUTO_CLASSES.items()
}
ARCHITECTURES = sorted({model for models in TRANSFORMERS.values() for model in models}, key=repr)
