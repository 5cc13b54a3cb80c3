"""All objectives that a recipe may name by `kind`, and what their recipes have in common.

kind                                               member      reads
masked_language_modeling                           encoder     running text
masked_language_modeling_with_next_sentence        encoder     pairs of sentence runs (documents with several)
replaced_token_detection                           encoder     running text
masked_language_modeling_with_sentence_order       encoder     pairs of sentence runs (documents with several)
sentence_denoising                                 encoder     sentences
causal_language_modeling                           decoder     running text
bidirectional_language_modeling                    elmo        running text
masked_next_token_prediction                       decoder     running text
hybrid_language_modeling                           decoder     running text
fill_in_the_middle                                 decoder     running text
character_language_modeling                        character   running text
translation                                        seq2seq     pairs of texts
span_corruption                                    seq2seq     running text
prefix_language_modeling                           seq2seq     running text
mixture_of_denoisers                               seq2seq     running text
denoising                                          seq2seq     running text
mixture                                            any         what its objectives read, each for a share

The recipe of an objective is a dataclass, which builds whatever belongs to it:

recipe --build-----> Objective          beside it in the same file
       --examples--> ExampleSource      what the objective learns from
       both in an `ObjectiveContext`: the tokenizer, lengths, seed and others
       --build_model--> Trainable       what is trained: a model, or several models as one module
       --model_class, saved, template, num_sentinels, special_tokens, reads_pairs, full_sequence, ...
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol

from pydantic import Field
from torch import nn
from transformers import PreTrainedTokenizerBase

from ...configs.by_kind import ByKind
from ...data.corpus import TokenizedCorpus
from ...data.steps.examples import ExampleSource
from ...data.steps.objective import Objective
from ...data.tokenizers.special_tokens import share_of_unknown
from ...data.tokenizers.tokenizer import Template
from ...modeling import NeuralConfig, NeuralPreTrainedModel, TercetConfig, TercetPreTrainedModel
from ...training.run_folder import MODEL

if TYPE_CHECKING:
    from ...data.documents import Documents

Rate = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Smoothing = Annotated[float, Field(ge=0, lt=1)]
ZLoss = Annotated[float, Field(ge=0)]


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


Trainable = NeuralPreTrainedModel | JointModel
"""A model, or several models that learn together."""

Corpus = TokenizedCorpus | tuple[TokenizedCorpus, TokenizedCorpus]
"""Documents, or for pairs the documents to read and the documents to write."""


@dataclass(frozen=True)
class FullSequence:
    """A sequence of full length; of a translation and its like, source and target together."""

    read: int
    """Tokens that the only stack, or the encoder, reads."""
    written: int
    """Tokens that a decoder beside an encoder reads and writes."""
    targets: float
    """Positions that reach the vocabulary, on average."""
    pairs: float = 0
    """Judgements of heads beside the vocabulary's: whether one text follows another, and the like."""
    states: float | None = None
    """States that are read of a model's last layer, if it computes no others; `None`: targets and pairs."""
    source: int | None = None
    """Vectors that the cross-attention of a decoder without an encoder reads; others read an encoder's."""
    passes: float = 0
    """Forward passes over it that nothing is learned from, beside the one that is learned from."""

    @property
    def tokens(self) -> int:
        return self.read + self.written


@dataclass(frozen=True)
class ObjectiveContext:
    """What a run has settled before it builds an objective and its examples."""

    tokenizer: PreTrainedTokenizerBase
    """Has cut the corpus, and has the special tokens that the objective needs."""
    sequence_length: int
    """Tokens that the model reads or writes at once, at most."""
    seed: int = 0
    """Seed of masks that never change, and of examples that are drawn anew for every epoch."""
    isolate_documents: bool = True
    """Whether a sequence ends with its document."""
    decoder_start_id: int | None = None
    """What a sequence-to-sequence model's decoder reads first; others need none."""
    is_held_out: bool = False
    """Whether models are measured on the examples: then each objective of a mixture has all of the text."""

    def required_start_id(self, kind: str) -> int:
        if self.decoder_start_id is None:
            raise ValueError(
                f"{kind} needs a decoder_start_token_id: set it in the model's config.json (T5: the pad "
                "token's id, BART: the eos token's)"
            )
        return self.decoder_start_id


class Measure(Protocol):
    """Further scores on held-out text, as of what a model writes."""

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Score a model."""
        ...

    def tell(self) -> None:
        """Say on the screen how good the scores can get on this text at most."""
        ...


@dataclass(frozen=True)
class BaseObjectiveRecipe(ABC):
    """What a recipe says of an objective. Abstract: each objective adds its fields, and builds itself."""

    model_class: ClassVar[type[NeuralPreTrainedModel]]
    """The model that learns it, which a finished run leaves in its folder `model`."""
    other_model_classes: ClassVar[Sequence[type[NeuralPreTrainedModel]]] = ()
    """Other models that learn it, if a recipe begins with one of theirs."""
    saved: ClassVar[Mapping[str, str]] = {MODEL: ""}
    """Folders of a finished run -> the part of what is trained that is saved there; "" is the whole."""
    inheriting: ClassVar[Sequence[str]] = ("",)
    """Parts of what is trained that begin with the weights of `model.path`, if a recipe names one."""
    template: ClassVar[Template]
    """What a tokenizer that is trained for it puts around a text; see `train_tokenizer`."""
    num_sentinels: ClassVar[int] = 0
    """Sentinels (`<extra_id_0>`, ...) of a tokenizer that is trained for it."""
    special_tokens: ClassVar[tuple[str, ...]] = ()
    """Further special tokens of such a tokenizer, by name."""
    TERMS: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Each term of its loss -> what is scored, and the Hub's name of such a task."""
    reads_pairs: ClassVar[bool] = False
    """Whether it reads pairs of texts, from two columns, instead of running text from one."""

    kind: str
    """Which objective this is."""

    @abstractmethod
    def build(self, context: ObjectiveContext) -> Objective:
        """Build the objective."""

    @property
    def model_classes(self) -> Sequence[type[NeuralPreTrainedModel]]:
        return (self.model_class, *self.other_model_classes)

    def build_model(self, config: NeuralConfig) -> Trainable:
        """Build what is trained, by default that of `model_classes` which has such a configuration.

        torch's seed decides its weights.

        Args:
            config: That of the model in the folder `model`; what the objective decides may be changed in it.
        """
        return next(known for known in self.model_classes if known.config_class is type(config))(config)

    def taught(self, model: Trainable, tokenizer: PreTrainedTokenizerBase) -> Trainable:
        """Return what is trained, with what it has to know of a tokenizer beside its vocabulary's size."""
        return model

    def parts(
        self, model: Trainable, sequence_length: int
    ) -> Sequence[tuple[NeuralPreTrainedModel, FullSequence]]:
        """List the models in what `build_model` gives, each with the longest sequence that it reads."""
        assert isinstance(model, NeuralPreTrainedModel)
        return [(model, self.full_sequence(sequence_length))]

    @abstractmethod
    def examples(self, corpus: Corpus, context: ObjectiveContext) -> ExampleSource:
        """Cut the examples that the objective learns from, or is measured on.

        Encoders read [CLS] text [SEP]. Decoders read the beginning-of-sequence token and text, so that the
        first token is predicted as well, and learn where documents end. Sequence-to-sequence models read text
        and its end.

        Raises:
            ValueError: The corpus is too small, or of the wrong kind.
        """

    @abstractmethod
    def full_sequence(self, sequence_length: int) -> FullSequence:
        """Describe the longest of its examples, from which costs are planned without a text."""

    def share_of_unknown(
        self, corpora: Sequence[TokenizedCorpus], tokenizer: PreTrainedTokenizerBase
    ) -> float:
        """Compute the share of unknown tokens among those that are predicted, by default among all."""
        return share_of_unknown([corpus.tokens for corpus in corpora], tokenizer)

    def count_bytes(self, corpus: Corpus, source: ExampleSource) -> dict[str, int]:
        """Count the UTF-8 bytes of text that a term's targets stand for, by the term's name.

        Bits per byte compare models of different tokenizers. Only terms whose targets are all the tokens of a
        text have them; by default, none.
        """
        return {}

    def measure(
        self,
        source: ExampleSource,
        documents: "Sequence[Documents]",
        context: ObjectiveContext,
        control_tokens: Sequence[str],
    ) -> Measure | None:
        """Return what scores models beside the objective on held-out documents; by default, nothing.

        Args:
            source: The examples of the documents.
            documents: One, or for pairs those to read and those to write.
            context: Context of the run.
            control_tokens: The special tokens that are recognized in the text.
        """
        return None


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


def single_text(corpus: Corpus, kind: str) -> TokenizedCorpus:
    if isinstance(corpus, tuple):
        raise unsuited(kind)
    return corpus


def unsuited(kind: str) -> ValueError:
    """Build the error of an objective that is given pairs instead of running text, or the other way round."""
    return ValueError(
        f"{kind} does not support this corpus: translation needs pairs, and all other objectives need "
        f"running text; set or remove corpus.source_column and corpus.target_column"
    )


OBJECTIVES = ByKind(
    __name__,
    {
        "masked_language_modeling": "masked_language_modeling.MaskedLanguageModelingRecipe",
        "masked_language_modeling_with_next_sentence": "masked_pairs.NextSentenceRecipe",
        "replaced_token_detection": "replaced_tokens.ReplacedTokenDetectionRecipe",
        "masked_language_modeling_with_sentence_order": "masked_pairs.SentenceOrderRecipe",
        "sentence_denoising": "sentence_denoising.SentenceDenoisingRecipe",
        "causal_language_modeling": "causal_language_modeling.CausalLanguageModelingRecipe",
        "bidirectional_language_modeling": (
            "bidirectional_language_modeling.BidirectionalLanguageModelingRecipe"
        ),
        "masked_next_token_prediction": "masked_next_token.MaskedNextTokenRecipe",
        "hybrid_language_modeling": "hybrid_language_modeling.HybridLanguageModelingRecipe",
        "fill_in_the_middle": "fill_in_the_middle.FillInTheMiddleRecipe",
        "character_language_modeling": "character_language_modeling.CharacterLanguageModelingRecipe",
        "translation": "translation.TranslationRecipe",
        "span_corruption": "span_corruption.SpanCorruptionRecipe",
        "prefix_language_modeling": "prefix_language_modeling.PrefixLanguageModelingRecipe",
        "mixture_of_denoisers": "mixture_of_denoisers.MixtureOfDenoisersRecipe",
        "denoising": "denoising.DenoisingRecipe",
    },
)
"""The `kind` of a recipe -> its dataclass."""

SingleObjectiveRecipe = Annotated[BaseObjectiveRecipe, OBJECTIVES]
"""Any of them; `kind` says which. Several of them make a mixture (`mixture.py`)."""

ObjectiveRecipe = Annotated[
    BaseObjectiveRecipe, ByKind(__name__, OBJECTIVES.names | {"mixture": "mixture.MixtureRecipe"})
]
"""What a pretraining recipe may name by `kind`: one objective, or a mixture."""
