"""Chat: a decoder learns to answer, from dialogues or from prompts and completions (supervised fine-tuning).

Only the assistant's turns are learned. Dialogues are written by the tokenizer's chat template, which is saved
with the model. A model is judged by the loss of the held-out answers and, if the recipe says so, by the last
answer of each row as it writes it on its own.

Legend: E rows.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from datasets import Dataset
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...configs.messages import quietly
from ...data.files.bad_rows import RowError
from ...data.files.columns import lists_of, texts_of
from ...data.files.problems import Row
from ...data.steps.examples import gather, has_field
from ...data.steps.objective import IGNORE, INDEX, Batch, Example
from ...data.steps.streams import fields_of, one_stream
from ...data.tokenizers.special_tokens import writes_lowercase
from ...modeling.generation.writing import before_end, read_out
from ...training.metrics.texts import rouge_of_each, score_of_rows, text_scores, tokenization_for
from ...training.token_objective import without_targets
from ..encoding import LabelledExamples, TextEncoder, as_ragged
from ..writing_defaults import settle_end
from .chat_encoding import (
    ASSISTANT,
    Dialogue,
    encode_dialogues,
    encode_prompts,
    end_of_answers,
    give_template,
    require_room,
    tell_of_room,
)
from .generation import ceiling_of, texts_in
from .objectives import TaskObjective
from .recipes import ColumnFields, RowsRecipe
from .task import Facts, Prediction, Predictions, RowScore, Shown, Task, shortened

FILLER = 0
"""Id that prompts are filled with to be answered together: any will do, since it is hidden."""

WRITTEN_AT_ONCE = 32
"""Dialogues that are answered together."""

PROMPT = "prompt"
"""The field of what is read before the last answer, in examples whose last answer is to be written."""

PROMPT_ENDS = "prompt_ends"
"""In a batch: where the prompt of each dialogue ends, as they lie end to end (S,)."""

READING_PROMPTS = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}
"""Generation defaults by which what fills a prompt counts like its tokens, and what has no effect."""


@dataclass(frozen=True)
class Answered:
    """What a model makes of a batch."""

    losses: Tensor
    """Loss of each dialogue, summed over its targets, (S,); 0 without targets."""
    counts: Tensor
    """How many targets each dialogue has, (S,)."""
    written: list[np.ndarray]
    """Ids of the last answer of each dialogue as the model writes it; empty if it was not to."""


class ChatObjective(TaskObjective[Answered]):
    """Cross-entropy of the tokens of the assistant's turns, each from all tokens before it."""

    def __init__(self, longest_answer: int, max_length: int):
        super().__init__("token")
        self.longest_answer = longest_answer
        self.max_length = max_length

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # `labels` are the tokens where the assistant writes, -100 elsewhere
        batch = one_stream(gather(examples, "input_ids"))
        batch |= fields_of(examples, along=["labels"], single=[INDEX])
        if has_field(examples, PROMPT):
            prompts = gather(examples, PROMPT)
            batch |= {
                PROMPT: torch.from_numpy(prompts.values),
                PROMPT_ENDS: torch.from_numpy(prompts.edges[1:]),
            }
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        return {self.term: is_target(batch).sum()}

    def predicted(self, batch: Batch) -> Tensor:
        return is_target(batch)[0].nonzero()[:, 0] - 1

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {self.term: model(**read_by(batch), labels=batch["labels"], reduction="sum").loss}

    def outputs(self, model: nn.Module, batch: Batch) -> Answered:
        bounds = batch["cu_seq_lens_q"].long()
        losses = torch.zeros(len(bounds) - 1, device=bounds.device)
        counts = torch.zeros_like(losses)
        if "labels" in batch:
            places = is_target(batch)[0].nonzero()[:, 0]
            logits = model(**read_by(batch), logits_to_keep=places - 1).logits[0]
            each = F.cross_entropy(logits.float(), batch["labels"][0, places], reduction="none")
            rows = torch.searchsorted(bounds, places, right=True) - 1
            losses.index_add_(0, rows, each)
            counts.index_add_(0, rows, torch.ones_like(each))
        answers = self.write(model, batch) if PROMPT in batch else []
        return Answered(losses, counts, answers)

    def loss(self, outputs: Answered, batch: Batch) -> Tensor:
        return outputs.losses.sum()

    def answers(self, outputs: Answered, batch: Batch) -> list[np.ndarray]:
        # loss and number of targets of each dialogue, and behind them the ids that were written
        numbers = torch.stack((outputs.losses, outputs.counts), dim=1).double().cpu().numpy()
        written = outputs.written or [np.zeros(0)] * len(numbers)
        return [np.concatenate(pair) for pair in zip(numbers, written, strict=True)]

    def write(self, model: nn.Module, batch: Batch) -> list[np.ndarray]:
        """Write the last answer of each dialogue, greedily and else by the model's generation defaults.

        What is written does not depend on what is written beside it: dialogues are answered together if they
        have the same room and, where the defaults read what fills a prompt, the same length.
        """
        prompts = batch[PROMPT].tensor_split(batch[PROMPT_ENDS].cpu()[:-1])
        written: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * len(prompts)
        together: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for index, prompt in enumerate(prompts):
            room = min(self.longest_answer, self.max_length - len(prompt))
            together[room, len(prompt) if reads_prompts(model) else 0].append(index)
        for (room, _), indices in together.items():
            for first in range(0, len(indices), WRITTEN_AT_ONCE) if room > 0 else ():
                chosen = indices[first : first + WRITTEN_AT_ONCE]
                found = answer(model, [prompts[index] for index in chosen], room)
                for index, ids in zip(chosen, found, strict=True):
                    written[index] = ids
        return written


def reads_prompts(model: nn.Module) -> bool:
    """Return whether what a model writes depends on which tokens its prompt has been filled with."""
    defaults = cast(Any, model).generation_config
    return any(getattr(defaults, name) not in (None, idle) for name, idle in READING_PROMPTS.items())


@torch.inference_mode()
def answer(model: nn.Module, prompts: Sequence[Tensor], room: int) -> list[np.ndarray]:
    """Write what follows prompts: before the first token that ends a text, or as much as there is room."""
    longest, generator = max(map(len, prompts)), cast(Any, model)
    ids = torch.stack([F.pad(own, (longest - len(own), 0), value=FILLER) for own in prompts])
    mask = torch.stack([F.pad(torch.ones_like(own), (longest - len(own), 0)) for own in prompts])
    with quietly():  # defaults of drawing have no effect here, and are told of
        found = generator.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=room, do_sample=False, pad_token_id=FILLER
        )
    known = generator.generation_config.eos_token_id
    ends = np.atleast_1d([] if known is None else known)
    return [before_end(row, ends) for row in found[:, longest:].cpu().numpy()]


def is_target(batch: Batch) -> Tensor:
    """Return which tokens are targets, (1, N), never the first one of a dialogue, which nothing precedes."""
    return (batch["labels"] != IGNORE) & (batch["position_ids"] > 0)


def read_by(batch: Batch) -> Batch:
    return without_targets(batch, INDEX, PROMPT, PROMPT_ENDS, "labels")


DIGITS = 6
"""Decimals of a prediction's loss."""

READ = ("role", "content")
"""What is read of a message."""


@dataclass(frozen=True)
class ChatRecipe(RowsRecipe):
    """The assistant's turns of a dialogue, learned by a decoder (supervised fine-tuning)."""

    COLUMNS = ColumnFields(
        ("messages", "prompt"),
        ("completion",),
        only_with={"completion": "prompt"},
        replaced_by={"messages": "prompt"},
    )
    TERMS = {"chat": ("answers in dialogues", "text-generation")}

    kind: Literal["chat"]
    messages: str = "messages"
    """Column of the dialogues: lists of `{role: ..., content: ...}`, with answers of the role `assistant`."""
    prompt: str | None = None
    """Column of prompts, where rows have a prompt and a completion instead of a dialogue."""
    completion: str = "completion"
    """Column of the completions, if there are prompts."""
    generate: bool = False
    """Whether the last answer of each held-out row is generated and compared with the row's, at every
    evaluation."""
    longest_answer: Annotated[int, Field(gt=0)] = 128
    """Maximum number of tokens in a generated answer."""
    metric_for_best_model: Literal["loss", "rougeL", "exact_match", "bleu", "chrf"] = "loss"
    """Metric that selects the best checkpoint: the loss of the answers, or another one with `generate`."""

    def __post_init__(self):
        if self.metric_for_best_model != "loss" and not self.generate:
            raise ValueError(
                f"metric_for_best_model is {self.metric_for_best_model}, which needs generated answers: set "
                "generate=true"
            )

    def as_value(self, column: str, text: str) -> Any:
        return [{"role": "user", "content": text}] if self.prompt is None else text

    def build(self, facts: Facts | None = None) -> "Chat":
        return Chat(self, facts)


class Chat(Task):
    """The assistant's turns of a dialogue."""

    title = "Chat"
    head = "ForCausalLM"
    recipe: ChatRecipe
    metrics = {
        "loss": False,
        "rougeL": True,
        "exact_match": True,
        "rouge1": True,
        "rouge2": True,
        "bleu": True,
        "chrf": True,
    }
    baseline = "frequency of tokens"
    learns_texts = True
    grades_errors = True
    encoder: TextEncoder
    """That of the latest examples."""

    def require_inputs(self, rows: Dataset) -> None:
        self.dialogues_in(rows, labelled=False)

    def require_labels(self, rows: Dataset) -> None:
        self.dialogues_in(rows, labelled=True)

    def find(self, train: Dataset) -> Facts:
        if self.recipe.prompt is None:
            column = self.recipe.messages
            tell_of_unread(lists_of(train, column, "messages"), column)
        return {"tokenization": tokenization_for(self.references(train))}

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        give_template(tokenizer)

    def prepare_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        settle_end(model, tokenizer, end_of_answers(tokenizer))

    @property
    def writes(self) -> bool:
        return self.recipe.generate

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        # without labels, up to where the assistant begins
        self.encoder = encoder
        dialogues = self.dialogues_in(rows, labelled=labelled)
        encoder.tell_of_dropped(turn["content"] for dialogue in dialogues for turn in dialogue)
        if not labelled:
            prompts = encode_prompts([without_last_answer(own) for own in dialogues], encoder.tokenizer)
            require_room(prompts, encoder.max_length)
            return LabelledExamples({"input_ids": as_ragged(prompts), PROMPT: as_ragged(prompts)})
        encoded = encode_dialogues(dialogues, encoder.tokenizer, encoder.max_length)
        fields = {
            "input_ids": as_ragged([each.ids for each in encoded]),
            "labels": as_ragged([np.where(each.is_target, each.ids, IGNORE) for each in encoded]),
        }
        if self.writes:
            prompts = encode_prompts([before_last_answer(own) for own in dialogues], encoder.tokenizer)
            tell_of_room(prompts, encoder.max_length)
            fields[PROMPT] = as_ragged(prompts)
        return LabelledExamples(fields)

    def objective(self) -> ChatObjective:
        return ChatObjective(self.recipe.longest_answer, self.encoder.max_length)

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        found: list[Prediction] = []
        texts = read_out(self.encoder.tokenizer, [answer[2:].astype(np.int64) for answer in answers])
        for answer, text in zip(answers, texts, strict=True):
            measured = (
                {"loss": round(float(answer[0]), DIGITS), "tokens": int(answer[1])} if answer[1] else {}
            )
            found.append(measured | ({"text": text.strip()} if self.writes or not measured else {}))
        return found

    def references(self, rows: Dataset) -> list[str]:
        return last_answers(self.dialogues_in(rows, labelled=True))

    def score(self, predictions: Predictions, references: Sequence[str]) -> dict[str, float]:
        scores = {"loss": ratio_of_sums(predictions)}
        if all("text" in each for each in predictions):
            scores |= text_scores(texts_in(predictions), references, **self.compared)
        return scores

    def ceiling(self, references: Sequence[str]) -> dict[str, float]:
        if not self.writes:
            return {}
        return ceiling_of(references, self.encoder.tokenizer, self.recipe.longest_answer, self.compared)

    def score_of_rows(self, predictions: Predictions, references: Sequence[str]) -> RowScore:
        if self.metric_for_best_model != "loss":
            texts = texts_in(predictions)
            return score_of_rows(self.metric_for_best_model, texts, references, **self.compared)
        sums = np.array([(each["loss"], each["tokens"]) for each in predictions])
        return lambda rows: float(np.divide(*sums[rows].sum(axis=0)))

    @property
    def compared(self) -> dict[str, Any]:
        """How texts are compared with answers: as the language needs it, and as the tokenizer can write."""
        return {"tokenize": self.facts["tokenization"], "lowercase": writes_lowercase(self.encoder.tokenizer)}

    def error(self, predictions: Predictions, references: Sequence[str]) -> np.ndarray:
        # the mean loss of a token of the row, or how much of the longest common subsequence is missing
        if self.metric_for_best_model == "loss":
            return np.array([each["loss"] / each["tokens"] for each in predictions])
        return 1 - rouge_of_each(texts_in(predictions), references)["rougeL"]

    def format_prediction(self, prediction: Prediction) -> str:
        surprise = f"{prediction['loss'] / prediction['tokens']:.2f} nats per token"
        return f"{prediction['text']} ({surprise})" if "text" in prediction else surprise

    def format_reference(self, reference: str) -> str:
        return reference

    def show(self, row: Row, prediction: Prediction, reference: str, *, is_right: bool = False) -> Shown:
        dialogue = without_last_answer(self.dialogue_of(row))
        role = "right" if is_right else "wrong"
        return [
            *((message["role"], [(shortened(message["content"]), "plain")]) for message in dialogue),
            ("reference", [(shortened(reference), "right")]),
            ("prediction", [(shortened(self.format_prediction(prediction)), role)]),
        ]

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        # how frequent each token is in the answers of the training rows, plus one
        learned, measured = (self.examples(each, self.encoder).fields["labels"] for each in (train, rows))
        counts = Counter(learned.values[learned.values != IGNORE].tolist())
        total = counts.total() + len(self.encoder.tokenizer)
        found = []
        for labels in measured:
            targets = labels[1:][labels[1:] != IGNORE]
            shares = np.array([counts[token] + 1 for token in targets.tolist()]) / total
            found.append({"loss": float(-np.log(shares).sum()), "tokens": len(targets)})
        return found

    def dialogues_in(self, rows: Dataset, *, labelled: bool) -> list[Dialogue]:
        """Return the dialogue of each row, with the completion if it is labelled."""
        if self.recipe.prompt is not None:
            prompts = texts_of(rows, self.recipe.prompt)
            completions = texts_of(rows, self.recipe.completion) if labelled else [None] * len(prompts)
            return [exchange(*pair) for pair in zip(prompts, completions, strict=True)]
        found, column = [], self.recipe.messages
        for row, messages in enumerate(lists_of(rows, column, "messages")):
            for message in messages:
                if not is_message(message):
                    raise RowError(
                        row,
                        f"has {str(message)[:80]} in column {column!r}, which is no message with a role and "
                        "a content: correct it",
                        f"has what is no message in column {column!r}",
                    )
            dialogue = plain(messages)
            if not dialogue or (labelled and all(each["role"] != ASSISTANT for each in dialogue[1:])):
                wanted = f"no message of {ASSISTANT} that answers another one" if labelled else "no messages"
                raise RowError(row, f"has {wanted} in column {column!r}: take it out, or add one")
            found.append(dialogue)
        return found

    def dialogue_of(self, row: Row) -> Dialogue:
        if self.recipe.prompt is None:
            return plain(row[self.recipe.messages])
        return exchange(str(row[self.recipe.prompt]), str(row[self.recipe.completion]))


def is_message(message: Any) -> bool:
    """Return whether a value is a message: a role, and a content that is not blank."""
    if not isinstance(message, dict):
        return False
    return all(isinstance(text := message.get(key), str) and text.strip() for key in READ)


def tell_of_unread(dialogues: Iterable[Sequence[dict[str, Any]]], column: str) -> None:
    """Warn of what messages have that is not read, such as calls of tools, or weights of answers."""
    fields = (field for dialogue in dialogues for message in dialogue for field in message.items())
    unread = Counter(key for key, value in fields if key not in READ and value not in (None, "", [], {}))
    if unread:
        told = ", ".join(f"{key!r} in {count:,}" for key, count in unread.most_common())
        warnings.warn(
            f"messages in column {column!r} have {told}, which is not read: role and content are, and all "
            "answers are learned",
            stacklevel=2,
        )


def plain(messages: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    return [{key: message[key] for key in READ} for message in messages]


def exchange(prompt: str, completion: str | None) -> list[dict[str, str]]:
    """Make a dialogue of a prompt and, if there is one, its completion."""
    answer = [] if completion is None else [{"role": ASSISTANT, "content": completion}]
    return [{"role": "user", "content": prompt}, *answer]


def without_last_answer(dialogue: Dialogue) -> Dialogue:
    """Return a dialogue up to its last answer; all of it if something follows that."""
    return dialogue[:-1] if dialogue[-1]["role"] == ASSISTANT and len(dialogue) > 1 else dialogue


def before_last_answer(dialogue: Dialogue) -> Dialogue:
    """Return a dialogue up to its last answer, without what follows that."""
    places = [place for place, message in enumerate(dialogue) if message["role"] == ASSISTANT]
    return dialogue[: places[-1]]


def last_answers(dialogues: Sequence[Dialogue]) -> list[str]:
    return [[each["content"] for each in own if each["role"] == ASSISTANT][-1] for own in dialogues]


def ratio_of_sums(predictions: Predictions) -> float:
    """Return the mean loss of a token over all rows."""
    return sum(each["loss"] for each in predictions) / sum(each["tokens"] for each in predictions)
