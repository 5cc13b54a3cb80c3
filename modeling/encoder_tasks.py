"""The encoder with the heads of tasks."""

from .configuration_tercet import TercetEncoderConfig
from .modeling_tercet_encoder import TercetEncoderModel
from .tasks import (
    TercetForMultipleChoice,
    TercetForQuestionAnswering,
    TercetForSentenceEmbedding,
    TercetForSequenceClassification,
    TercetForTokenClassification,
)


class TercetEncoderForSequenceClassification(TercetForSequenceClassification):
    """The encoder and labels of whole sequences, by default read from the first token as in BERT.

    Example:
        >>> import torch
        >>> from tercet import TercetEncoderConfig, TercetEncoderForSequenceClassification
        >>> config = TercetEncoderConfig(hidden_size=32, num_attention_heads=2, num_labels=3)
        >>> model = TercetEncoderForSequenceClassification(config)
        >>> model(torch.tensor([[5, 6, 7], [8, 9, 0]])).logits.shape
        torch.Size([2, 3])
    """

    config: TercetEncoderConfig

    def __init__(self, config: TercetEncoderConfig):
        super().__init__(config, TercetEncoderModel(config))


class TercetEncoderForTokenClassification(TercetForTokenClassification):
    """The encoder and labels of single tokens."""

    config: TercetEncoderConfig

    def __init__(self, config: TercetEncoderConfig):
        super().__init__(config, TercetEncoderModel(config))


class TercetEncoderForQuestionAnswering(TercetForQuestionAnswering):
    """The encoder and where an answer starts and ends."""

    config: TercetEncoderConfig

    def __init__(self, config: TercetEncoderConfig):
        super().__init__(config, TercetEncoderModel(config))


class TercetEncoderForMultipleChoice(TercetForMultipleChoice):
    """The encoder and which of several texts is the correct one."""

    config: TercetEncoderConfig

    def __init__(self, config: TercetEncoderConfig):
        super().__init__(config, TercetEncoderModel(config))


class TercetEncoderForSentenceEmbedding(TercetForSentenceEmbedding):
    """The encoder and a vector for each text.

    Example:
        >>> import torch
        >>> from tercet import TercetEncoderConfig, TercetEncoderForSentenceEmbedding
        >>> config = TercetEncoderConfig(hidden_size=32, num_attention_heads=2, classifier_pooling="mean")
        >>> model = TercetEncoderForSentenceEmbedding(config)
        >>> model(torch.tensor([[5, 6, 7], [8, 9, 0]])).sentence_embeddings.shape
        torch.Size([2, 32])
    """

    config: TercetEncoderConfig

    def __init__(self, config: TercetEncoderConfig):
        super().__init__(config, TercetEncoderModel(config))
