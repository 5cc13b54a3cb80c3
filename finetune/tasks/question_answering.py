"""Question answering: the span of a text that answers a question, or that there is none.

Each token is scored as the first one of the answer and as the last one (Devlin et al., 2019, sections 4.2 and
4.3). A long text is read in windows, and those that do not hold the whole answer are to say that there is
none. What is answered is the most probable span of all windows; or nothing, if there were questions without
an answer to learn from, and even the window that is least sure of there being none is surer of that.

Windows: a question with a part of a text, which may be longer than what a model reads.

    [CLS] question [SEP] the text from its beginning ... [SEP]
    [CLS] question [SEP] ... the text again, from the last `stride` tokens of the window before ... [SEP]

That there is no answer is a place, too: the first token, which is [CLS] in BERT (Devlin et al., 2019, section
4.3). But the first token of a causal model has seen nothing, and where a tokenizer opens no text it is the
question's: there it is the last token, which ends the text (`frames.end_pairs`).

Shapes: E examples, W windows of a row, T tokens of a window, or of a question with a whole text, S windows of
a batch.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from datasets import Dataset
from pydantic import Field
from tokenizers import Encoding
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from ...data.files.bad_rows import RowError
from ...data.files.columns import texts_of, values_of
from ...data.steps.examples import gather, has_field
from ...data.steps.objective import INDEX, Batch, Example
from ...data.steps.packing import Ragged, ragged
from ...data.steps.streams import fields_of, in_rows, one_stream
from ...training.metrics.answers import answer_scores, exact_match, word_f1
from ..encoding import LabelledExamples, TextEncoder, vectors
from ..frames import end_pairs
from .objectives import TaskObjective, inputs_of, one_entry_each
from .recipes import ColumnFields, RowsRecipe
from .task import Facts, Prediction, Predictions, RowScore, Task
from .texts import DIGITS

NO_CHARACTER = -1
"""Where a token begins and ends that stands for no character of the text."""

CHARACTERS = ("begins", "ends")
"""Fields of a batch: where each token begins and ends in the text."""

WINDOW_FIELDS = ("rows", "nowhere")
"""Fields of a batch: the row of each window, and its token that stands for no answer."""


class QuestionAnsweringObjective(TaskObjective[Tensor]):
    """Cross-entropy of an answer's first and last token among those of the window, their mean."""

    def __init__(self, longest_answer: int):
        super().__init__("answer")
        self.longest_answer = longest_answer

    def collate(self, examples: Sequence[Example], seed: int) -> Batch:
        # labels are (S, 1, 2), `begins` and `ends` streams like the ids
        batch = one_stream(gather(examples, "input_ids"))
        batch |= fields_of(examples, along=("token_type_ids", *CHARACTERS), single=(INDEX, *WINDOW_FIELDS))
        if has_field(examples, "labels"):
            batch["labels"] = one_entry_each(gather(examples, "labels"))
        return batch

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        # of each token as the first and as the last one, (S, T, 2), -inf beyond the window
        inputs = inputs_of(batch)
        found = model(**{name: inputs[name] for name in inputs if name not in CHARACTERS + WINDOW_FIELDS})
        scores = torch.stack((found.start_logits[0], found.end_logits[0]), dim=-1)
        return in_rows(scores, batch["cu_seq_lens_q"], batch["max_length_q"], -torch.inf)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(outputs.float(), batch["labels"][:, 0], reduction="sum") / 2

    def answers(self, outputs: Tensor, batch: Batch) -> list[np.ndarray]:
        # Five numbers of each window: its row, the characters from and up to which its best span goes, and
        # the logarithms of the probabilities of this span and of there being no answer.
        sizes = batch["cu_seq_lens_q"], batch["max_length_q"]
        begins, ends = (in_rows(batch[name][0], *sizes, NO_CHARACTER) for name in CHARACTERS)
        scores = outputs.float().log_softmax(1)
        windows = torch.arange(len(scores), device=scores.device)
        start, end = scores.masked_fill((begins == NO_CHARACTER)[..., None], -torch.inf).unbind(-1)
        found, first, last = best_spans(start, end, self.longest_answer)
        none = scores[windows, batch["nowhere"]].sum(-1)
        columns = (batch["rows"], begins[windows, first], ends[windows, last], found, none)
        return list(np.column_stack([column.cpu().numpy() for column in columns]))


def best_spans(start: Tensor, end: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the span of each row whose scores of start and end (S, T) sum up to most: sum, first, last (S,).

    All spans of at most `longest` tokens are tried.
    """
    reach = min(longest, start.shape[1])
    sums = start[..., None] + F.pad(end, (0, reach - 1), value=-torch.inf).unfold(-1, reach, 1)
    best, place = sums.flatten(1).max(-1)
    return best, place // reach, place // reach + place % reach


ROWS_AT_ONCE = 512
"""Rows of which the tokenizer's own account is in memory at once."""

Pair = dict[str, np.ndarray]
"""A question with a whole text: `input_ids`, ... (T,), and which tokens are the text's, `is_text` (T,)."""


def encode_windows(
    encoder: TextEncoder, questions: Sequence[str], texts: Sequence[str], stride: int
) -> dict[str, Ragged]:
    """Encode questions and the texts that answer them, each in as many windows as it needs.

    Every window has `input_ids` (T,) and, if the model reads them, `token_type_ids` (T,); `begins` and `ends`
    (T,), from and up to which character of the text an answer goes whose first or last token it is, -1 where
    it can be neither; `rows`, the number of its row; and `nowhere`, the token that says that there is none.
    """
    fields: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for first in range(0, len(questions), ROWS_AT_ONCE):
        chosen = slice(first, first + ROWS_AT_ONCE)
        for row, pair in enumerate(encode_pairs(encoder, questions[chosen], texts[chosen]), first):
            for places in window_places(pair.pop("is_text"), encoder.max_length, stride, row):
                for name, values in pair.items():
                    fields[name].append(values[places])
                fields["rows"].append(np.array([row]))
                fields["nowhere"].append(np.array([nowhere(encoder, len(places))]))
    if not encoder.has_token_types:
        del fields["token_type_ids"]
    return {name: ragged(arrays) for name, arrays in fields.items()}


def nowhere(encoder: TextEncoder, num_tokens: int) -> int:
    """Return which token of a window stands for no answer."""
    return 0 if encoder.frames and not encoder.is_causal else num_tokens - 1


def window_places(is_text: np.ndarray, max_length: int, stride: int, row: int) -> list[np.ndarray]:
    """Return the places of each window's tokens: of a part of the text, and of all that is not the text's.

    Windows overlap by half of what the question leaves to the text at most, or there would be very many.

    >>> [places.tolist() for places in window_places(np.array([0, 0, 1, 1, 1, 1, 1, 0]), 7, 2, row=0)]
    [[0, 1, 2, 3, 4, 5, 7], [0, 1, 4, 5, 6, 7]]
    """
    places = np.flatnonzero(is_text)
    if not len(places):
        raise RowError(row, "has a text of which the tokenizer leaves nothing: take it out")
    before, behind = np.arange(places[0]), np.arange(places[-1] + 1, len(is_text))
    room = max_length - len(before) - len(behind)
    if room < 1:
        raise RowError(
            row,
            f"has a question that leaves none of {max_length} tokens to the text: shorten it, or take it out",
        )
    overlap = min(stride, room // 2)
    starts = range(0, max(len(places) - overlap, 1), room - overlap)
    return [np.concatenate((before, places[start : start + room], behind)) for start in starts]


def encode_pairs(encoder: TextEncoder, questions: Sequence[str], texts: Sequence[str]) -> list[Pair]:
    """Encode each question with its whole text."""
    encoded = encoder.tokenizer(list(questions), list(texts), verbose=False)
    encoder.tell_of_dropped([*questions, *texts])
    account = cast(list[Encoding], encoded.encodings)
    return [pair_of(each, text) for each, text in zip(account, texts, strict=True)]


def pair_of(encoding: Encoding, text: str) -> Pair:
    """Turn the tokenizer's account of a pair into arrays."""
    is_text = np.array([number == 1 for number in encoding.sequence_ids])
    offsets = np.full((len(is_text), 2), NO_CHARACTER)
    offsets[is_text] = characters(text, np.array(encoding.offsets)[is_text])
    begins, ends = offsets.T
    return {
        "input_ids": np.array(encoding.ids),
        "token_type_ids": np.array(encoding.type_ids),
        "begins": begins,
        "ends": ends,
        "is_text": is_text,
    }


def characters(text: str, offsets: np.ndarray) -> np.ndarray:
    r"""Find from where to where tokens stand for a text, without the spaces around them: (T, 2) to (T, 2).

    What the tokenizer has dropped between two tokens, an accent or a mark of direction, goes with what it
    touches. Tokens of nothing but spaces stand for no character.

    >>> characters("a b\u0301!", np.array([[0, 1], [1, 3], [4, 5]])).tolist()
    [[0, 1], [2, 4], [4, 5]]
    """
    is_space = np.array([letter.isspace() for letter in text])
    edges = np.concatenate(([-1], np.flatnonzero(is_space), [len(text)]))
    begins, ends = offsets.T
    following = np.append(begins[1:], len(text))
    ends = np.maximum(ends, np.minimum(following, edges[np.searchsorted(edges, ends)]))
    preceding = np.append(0, ends[:-1])
    begins = np.minimum(begins, np.maximum(preceding, edges[np.searchsorted(edges, begins) - 1] + 1))
    letters = np.flatnonzero(~is_space)
    first, behind = np.searchsorted(letters, begins), np.searchsorted(letters, ends)
    spans = np.stack((letters.take(first, mode="clip"), letters.take(behind - 1, mode="clip") + 1), axis=1)
    return np.where((first < behind)[:, None], spans, NO_CHARACTER)


NO_ANSWER = "(no answer)"
"""What reports write where there is none."""

SCORES_OF_ROWS = {"exact_match": exact_match, "f1": word_f1}
"""How a single answer is scored."""


class Answer(NamedTuple):
    """A part of a text."""

    text: str
    begin: int
    """The character that it begins with."""

    @property
    def end(self) -> int:
        return self.begin + len(self.text)


@dataclass(frozen=True)
class QuestionAnsweringRecipe(RowsRecipe):
    """The span of a text that answers a question."""

    COLUMNS = ColumnFields(("question", "context"), ("answers",))
    TERMS = {"question_answering": ("answers", "question-answering")}
    METRICS = {
        "has_answer_exact_match": "exact match where there is an answer",
        "has_answer_f1": "F1 where there is an answer",
        "no_answer_exact_match": "exact match where there is none",
        "no_answer_f1": "F1 where there is none",
    }

    kind: Literal["question_answering"]
    question: str = "question"
    """Column of the question."""
    context: str = "context"
    """Column of the text that holds the answer."""
    answers: str = "answers"
    """Column of the answers: `{text: [...], answer_start: [...]}`, both empty if there is no answer."""
    stride: Annotated[int, Field(ge=0)] = 64
    """Overlap in tokens of the windows of a context that is too long; at most half of a window."""
    longest_answer: Annotated[int, Field(gt=0)] = 30
    """Maximum number of tokens in a predicted answer."""
    metric_for_best_model: Literal["f1", "exact_match"] = "f1"
    """Metric that selects the best checkpoint."""

    def build(self, facts: Facts | None = None) -> "QuestionAnswering":
        return QuestionAnswering(self, facts)


class QuestionAnswering(Task):
    """The span of a text that answers a question."""

    title = "Question answering"
    head = "ForQuestionAnswering"
    metrics = {
        "exact_match": True,
        "f1": True,
        "has_answer_exact_match": True,
        "has_answer_f1": True,
        "no_answer_exact_match": True,
        "no_answer_f1": True,
        "loss": False,
    }
    baseline = "most frequent answer"
    grades_errors = True
    recipe: QuestionAnsweringRecipe

    def require_labels(self, rows: Dataset) -> None:
        self.answers_in(rows)

    def find(self, train: Dataset) -> Facts:
        first = [(own or [""])[0] for own in self.references(train)]
        return {"has_unanswerable": "" in first, "most_frequent": Counter(first).most_common(1)[0][0]}

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        end_pairs(tokenizer)

    def examples(self, rows: Dataset, encoder: TextEncoder, *, labelled: bool = True) -> LabelledExamples:
        questions, texts = (texts_of(rows, column) for column in self.recipe.input_columns)
        fields = encode_windows(encoder, questions, texts, self.recipe.stride)
        if labelled:
            fields["labels"] = vectors(places_in(fields, self.answers_in(rows)))
        return LabelledExamples(fields)

    def answers_in(self, rows: Dataset) -> list[list[Answer]]:
        """Return the answers of each row."""
        texts, values = texts_of(rows, self.recipe.context), values_of(rows, self.recipe.answers)
        found = []
        for row, (text, value) in enumerate(zip(texts, values, strict=True)):
            found.append(own := read_answers(value, row, self.recipe.answers))
            for answer in own:
                if answer.begin < 0 or text[answer.begin : answer.end] != answer.text:
                    raise misplaced(answer, text, row)
        return found

    def references(self, rows: Dataset) -> list[list[str]]:
        return [[answer.text for answer in own] for own in self.answers_in(rows)]

    def objective(self) -> QuestionAnsweringObjective:
        return QuestionAnsweringObjective(self.recipe.longest_answer)

    def predictions(self, answers: Sequence[np.ndarray], rows: Dataset) -> list[Prediction]:
        table = np.stack(answers)
        firsts = np.flatnonzero(np.diff(table[:, 0], prepend=-1))
        texts = texts_of(rows, self.recipe.context)
        return [
            self.prediction(windows, text)
            for windows, text in zip(np.split(table, firsts[1:]), texts, strict=True)
        ]

    def prediction(self, windows: np.ndarray, text: str) -> Prediction:
        """Predict from the windows of a row (W, 5)."""
        _, begin, end, found, _ = windows[windows[:, 3].argmax()]
        none = windows[:, 4].min()
        has_answer = found >= none or not self.facts["has_unanswerable"]
        return {
            "answer": text[int(begin) : int(end)] if has_answer else "",
            "answer_start": int(begin) if has_answer else None,
            "score": round(float(np.exp(found if has_answer else none)), DIGITS),
            "no_answer_score": round(float(np.exp(none)), DIGITS),
        }

    def score(self, predictions: Predictions, references: Sequence[Any]) -> dict[str, float]:
        return answer_scores([each["answer"] for each in predictions], references)

    def error(self, predictions: Predictions, references: Sequence[Any]) -> np.ndarray:
        # how much the answer's words differ from those of a right one
        return 1 - each_score("f1", predictions, references)

    def sureness(self, predictions: Predictions) -> np.ndarray:
        return np.array([each["score"] for each in predictions])

    def format_prediction(self, prediction: Prediction) -> str:
        return f"{prediction['answer'] or NO_ANSWER} ({prediction['score']:.0%})"

    def format_reference(self, reference: Any) -> str:
        return " / ".join(dict.fromkeys(reference)) or NO_ANSWER

    def guess(self, train: Dataset, rows: Dataset) -> list[Prediction]:
        usual = self.facts["most_frequent"]
        return [{"answer": usual, "score": 1.0, "no_answer_score": float(not usual)}] * len(rows)

    def score_of_rows(self, predictions: Predictions, references: Sequence[Any]) -> RowScore:
        values = each_score(self.metric_for_best_model, predictions, references)
        return lambda rows: float(values[rows].mean())


def each_score(name: str, predictions: Predictions, references: Sequence[Sequence[str]]) -> np.ndarray:
    """Score each answer on its own, (E,)."""
    pairs = zip(predictions, references, strict=True)
    return np.array([SCORES_OF_ROWS[name](each["answer"], right) for each, right in pairs])


def read_answers(value: Any, row: int, column: str) -> list[Answer]:
    """Read the answers of a row, without spaces around them; blank ones are none."""
    try:
        parts = (
            [(each["text"], each["answer_start"]) for each in value]
            if isinstance(value, list)
            else [*zip(*(as_list(value[name]) for name in ("text", "answer_start")), strict=True)]
        )
        answers = [
            Answer(text.strip(), index(begin) + len(text) - len(text.lstrip())) for text, begin in parts
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RowError(
            row,
            f"has {str(value)[:80]} in column {column!r}, neither {{text: [...], answer_start: [...]}} nor a "
            "list of {text, answer_start}: correct it",
            f"has answers of another form in column {column!r}",
        ) from None
    return [answer for answer in answers if answer.text]


def as_list(value: Any) -> list[Any]:
    """Return a list as it is; raise a `TypeError` for anything else, such as a text, which has letters."""
    if not isinstance(value, list):
        raise TypeError
    return value


def misplaced(answer: Answer, text: str, row: int) -> RowError:
    """Build the error of an answer that does not stand where its row says."""
    place = text.find(answer.text)
    remedy = f"it stands at {place}: correct answer_start" if place >= 0 else "it stands nowhere: correct it"
    instead = text[max(answer.begin, 0) : max(answer.end, 0)]
    return RowError(
        row,
        f"has the answer {answer.text!r} at {answer.begin}, where {instead!r} stands; {remedy}",
        "has an answer that does not stand where it should",
    )


def places_in(fields: Mapping[str, Ragged], answers: Sequence[Sequence[Answer]]) -> np.ndarray:
    """Find the first and the last token of the answer in each window (W, 2), or `nowhere` twice.

    A row's first answer counts. Where no window holds the whole of one, a warning counts the rows.
    """
    places = np.repeat(fields["nowhere"].values[:, None], 2, axis=1)
    sought = {row: own[0] for row, own in enumerate(answers) if own}
    found = set()
    for window, row in enumerate(fields["rows"].values.tolist()):
        if row in sought and (span := span_of(sought[row], fields["begins"][window], fields["ends"][window])):
            places[window] = span
            found.add(row)
    if lost := len(sought) - len(found):
        warnings.warn(
            f"{lost:,} of {len(sought):,} answers do not fit into any window, and are trained as if there "
            f"were no answer: raise task.stride or data.max_length",
            stacklevel=2,
        )
    return places


def span_of(answer: Answer, begins: np.ndarray, ends: np.ndarray) -> tuple[int, int] | None:
    """Find the first and the last token of an answer in a window (T,), if all of it is there.

    The nearest tokens are taken that hold it: a border may lie inside a token, and a character in several.
    """
    can_begin, can_end = (begins != NO_CHARACTER) & (begins <= answer.begin), ends >= answer.end
    if not can_begin.any() or not can_end.any():
        return None
    first = np.flatnonzero(begins == begins[can_begin].max())[0]
    last = np.flatnonzero(ends == ends[can_end].min())[-1]
    return min(first, last), max(first, last)
