"""The decoder with the heads of tasks."""

from .configuration_tercet import TercetDecoderConfig
from .modeling_tercet_decoder import TercetDecoderModel
from .tasks import (
    TercetForMultipleChoice,
    TercetForQuestionAnswering,
    TercetForSentenceEmbedding,
    TercetForSequenceClassification,
    TercetForTokenClassification,
)


class TercetDecoderForSequenceClassification(TercetForSequenceClassification):
    """The decoder and labels of whole sequences, by default read from the last token as in GPT-2."""

    config: TercetDecoderConfig

    def __init__(self, config: TercetDecoderConfig):
        super().__init__(config, TercetDecoderModel(config))


class TercetDecoderForTokenClassification(TercetForTokenClassification):
    """The decoder and labels of single tokens, each known from what came before it."""

    config: TercetDecoderConfig

    def __init__(self, config: TercetDecoderConfig):
        super().__init__(config, TercetDecoderModel(config))


class TercetDecoderForQuestionAnswering(TercetForQuestionAnswering):
    """The decoder and where an answer starts and ends."""

    config: TercetDecoderConfig

    def __init__(self, config: TercetDecoderConfig):
        super().__init__(config, TercetDecoderModel(config))


class TercetDecoderForMultipleChoice(TercetForMultipleChoice):
    """The decoder and which of several texts is the correct one.

    Each is read by itself and scored at its last token (Radford et al., 2018, section 3.3).
    """

    config: TercetDecoderConfig

    def __init__(self, config: TercetDecoderConfig):
        super().__init__(config, TercetDecoderModel(config))


class TercetDecoderForSentenceEmbedding(TercetForSentenceEmbedding):
    """The decoder and a vector for each text, by default the state of its last token, which has read all."""

    config: TercetDecoderConfig

    def __init__(self, config: TercetDecoderConfig):
        super().__init__(config, TercetDecoderModel(config))
