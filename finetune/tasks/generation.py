"""Generation: a text for a text, by a model of source and target (translation, summarization, ...).

Both texts have the frame that the tokenizer gives them, each in its language where it knows several, and the
end-of-sequence token in it. The target is learned with teacher forcing, as in pretraining. A model is judged
by what it writes on its own, too, as `generation_config.json` says that it writes, which is saved with it.

Legend: E rows, N packed tokens of the encoder, M packed tokens of the decoder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from datasets import Dataset
from pydantic import Field
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...data.files.columns import texts_of
from ...data.steps.examples import gather, has_field
from ...data.steps.objective import INDEX, Batch, Example
from ...data.steps.packing import Ragged, pack
from ...data.steps.streams import fields_of, one_step_late, one_stream, side_by_side
from ...data.tokenizers.sentences import split_sentences
from ...data.tokenizers.special_tokens import writes_lowercase
from ...modeling.generation.writing import read_out, rewritten, write
from ...training.metrics.texts import rouge_of_each, score_of_rows, text_scores, tokenization_for
from ...training.token_objective import without_targets
from ..encoding import LabelledExamples, TextEncoder
from ..frames import end_texts
from ..writing_defaults import settle_writing
from .objectives import TaskObjective
from .recipes import ColumnFields, Modules, RowsRecipe
from .task import Facts, Prediction, Predictions, RowScore, Task

FILLER = 0
"""Id that sources are filled with to be written for together: any will do, since it is hidden."""


@dataclass(frozen=True)
class Written:
    """What a model makes of a batch."""

    loss: Tensor
    """Summed over the targets' tokens with teacher forcing; 0 without targets."""
    targets: list[np.ndarray]
    """Ids that the model has written on its own, one array for each source."""


class GenerationObjective(TaskObjective[Written]):
    """Teacher forcing: each token of a target from the source and the true tokens before it.

    What a model writes by itself, it writes by its generation defaults (`settle_writing`), without drawing.
    """

    def __init__(self):
        super().__init__("token")

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        sources = gather(examples, "input_ids")
        if has_field(examples, "labels"):
            batch = side_by_side(pack(sources), pack(gather(examples, "decoder_input_ids")))
        else:
            batch = one_stream(sources)
        return batch | fields_of(examples, along=["labels"], single=[INDEX])

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {self.term: torch.tensor(batch["labels"].numel(), device=batch["labels"].device)}

    def predicted(self, batch: Batch) -> Tensor:
        return torch.arange(batch["labels"].shape[1])

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {self.term: model(**without_targets(batch, INDEX), reduction="sum").loss}

    def outputs(self, model: nn.Module, batch: Batch) -> Written:
        ids, edges = batch["input_ids"][0].cpu().numpy(), batch["cu_seq_lens_k"].tolist()
        written = write(model, np.split(ids, edges[1:-1]), FILLER)
        is_labelled = "labels" in batch
        return Written(self.losses(model, batch)[self.term] if is_labelled else torch.zeros(()), written)

    def loss(self, outputs: Written, batch: Batch) -> Tensor:
        return outputs.loss

    def answers(self, outputs: Written, batch: Batch) -> list[np.ndarray]:
        return outputs.targets


@dataclass(frozen=True)
class GenerationRecipe(RowsRecipe):
    """A target text for a source text: translation, summarization, ..."""

    COLUMNS = ColumnFields(("source",), ("target",))
    TERMS = {"generation": ("written texts", "text2text-generation")}

    kind: Literal["generation"]
    source: str = "source"
    """Column of the source text."""
    target: str = "target"
    """Column of the target text."""
    prefix: str = ""
    """Prefix of every source, such as `summarize: `."""
    longest_target: Annotated[int, Field(gt=0)] = 64
    """Maximum number of tokens in a generated text."""
    num_beams: Annotated[int, Field(gt=0)] | None = None
    """Number of beams in beam search; by default, what the model's `generation_config.json` says, or 1."""
    metric_for_best_model: Literal["bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact_match"] = "rougeL"
    """Metric that selects the best checkpoint."""
    metrics: Modules = ()
    """Modules of the `evaluate` library that are computed and reported as well."""

    def build(self, facts: Facts | None = None) -> "Generation":
        return Generation(self, facts)


class Generation(Task):
    """A text for a text."""

    title = "Generation"
    head = "ForConditionalGeneration"
    recipe: GenerationRecipe
    metrics = {
        "bleu": True,
        "chrf": True,
        "rouge1": True,
        "rouge2": True,
        "rougeL": True,
        "exact_match": True,
        "loss": False,
    }
    baseline = "first sentence"
    learns_texts = True
    grades_errors = True
    tokenizer: PreTrainedTokenizerBase
    """That of the latest examples: it reads out what was written for them."""

    def find(self, train: Dataset) -> Facts:
        targets = self.references(train)
        if len(set(targets)) < 2:
            raise ValueError(
                f"all rows have the same text in column {self.recipe.target!r}: there is nothing to learn; "
                "add rows with others, or name another column"
            )
        return {"tokenization": tokenization_for(targets)}

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        end_texts(tokenizer)

    def prepare_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        settle_writing(model, tokenizer, self.recipe.longest_target, self.recipe.num_beams)

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        self.tokenizer, longest = encoder.tokenizer, self.recipe.longest_target
        if encoder.decoder_start_id is None:
            raise ValueError(
                "the model's configuration names no decoder_start_token_id: set model.overrides"
                ".decoder_start_token_id to the id that its decoder was pretrained to start with"
            )
        if longest > encoder.max_length:
            raise ValueError(
                f"task.longest_target is {longest}, but a text may have {encoder.max_length} tokens: lower "
                f"it, or raise data.max_length, up to the number of the model's positions"
            )
        sources = [self.recipe.prefix + text for text in texts_of(rows, self.recipe.source)]
        fields = encoder.encode(sources)
        if labelled:
            labels = encoder.encode_targets(texts_of(rows, self.recipe.target), longest)
            late = one_step_late(pack(labels), encoder.decoder_start_id)[0].numpy()
            fields |= {"decoder_input_ids": Ragged(late, labels.lengths), "labels": labels}
        return LabelledExamples(fields)

    def objective(self) -> GenerationObjective:
        return GenerationObjective()

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        return [{"text": text} for text in read_out(self.tokenizer, answers)]

    def references(self, rows: Dataset) -> list[str]:
        return texts_of(rows, self.recipe.target)

    def score(self, predictions: Predictions, references: Sequence[str]) -> dict[str, float]:
        return text_scores(texts_in(predictions), references, **self.compared)

    def ceiling(self, references: Sequence[str]) -> dict[str, float]:
        return ceiling_of(references, self.tokenizer, self.recipe.longest_target, self.compared)

    def score_of_rows(self, predictions: Predictions, references: Sequence[str]) -> RowScore:
        return score_of_rows(self.metric_for_best_model, texts_in(predictions), references, **self.compared)

    @property
    def compared(self) -> dict[str, Any]:
        """How texts are compared with targets: as the language needs it, and as the tokenizer can write."""
        return {"tokenize": self.facts["tokenization"], "lowercase": writes_lowercase(self.tokenizer)}

    def plain(self, predictions: Predictions, references: Sequence[str]) -> tuple[list[str], list[str]]:
        return texts_in(predictions), list(references)

    def error(self, predictions: Predictions, references: Sequence[str]) -> np.ndarray:
        # how much of the longest common subsequence is missing
        return 1 - rouge_of_each(texts_in(predictions), references)["rougeL"]

    def format_prediction(self, prediction: Prediction) -> str:
        return prediction["text"]

    def format_reference(self, reference: str) -> str:
        return reference

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        # The first sentence of each source says what a text is about more often than not. For summaries this
        # is the usual lower bound (LEAD-1); for sources of one sentence, as in translation, it is the other
        # usual one: the source itself.
        sources = texts_of(rows, self.recipe.source)
        return [{"text": split_sentences(text.strip())[0]} for text in sources]


def texts_in(predictions: Predictions) -> list[str]:
    return [each["text"] for each in predictions]


def ceiling_of(
    references: Sequence[str], tokenizer: PreTrainedTokenizerBase, longest: int, compared: Mapping[str, Any]
) -> dict[str, float]:
    """Score texts that a tokenizer has rewritten, cut to some length; nothing if they stay as they were."""
    scores = text_scores(rewritten(tokenizer, references, longest), references, **compared)
    return scores if scores["exact_match"] < 1 else {}
