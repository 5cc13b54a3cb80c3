"""What fine-tuned models do: label a text or its words, find an answer, choose one.

A model that `tercet finetune` made is asked as `tercet predict` asks it; a stock one by its head alone.
Shapes: T tokens, L labels.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ...data.files.columns import as_rows
from ...finetune.encoding import TextEncoder
from ...finetune.tasks.multiple_choice import MultipleChoice
from ...finetune.tasks.question_answering import QuestionAnswering
from ...finetune.tasks.tagging import WORD, Tagging
from ...finetune.tasks.task import Prediction
from ...finetune.tasks.texts import TextTask
from ...reports.blocks import Entry, Note, Passage, Ranking, Result, Run
from .ability import MOST_ANSWERS, Ability, Field, TextField, lines_of, top_field
from .loaded_model import LoadedModel

LONGEST_ANSWER = 30
"""Tokens of an answer that a stock model finds."""

OUTSIDE = "O"
"""The label of words that belong to no span."""


def predict_row(model: LoadedModel, row: dict[str, Any]) -> Prediction:
    """Ask a fine-tuned model as `tercet predict` does."""
    assert model.predictor is not None
    return model.predictor.predict(as_rows({name: [value] for name, value in row.items()}))[0]


class Classify(Ability):
    """The labels of a text, or of a pair of texts, or a number."""

    name = "classify"
    title = "Classify"
    action = "Classify"
    about = "The labels that the model was fine-tuned for, with their probabilities."

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        named = type(model.model).__name__.endswith("ForSequenceClassification")
        return isinstance(model.task, TextTask) or named

    @property
    def columns(self) -> Sequence[str]:
        return self.model.task.recipe.texts if isinstance(self.model.task, TextTask) else ("text",)

    @property
    def fields(self) -> Sequence[Field]:
        return [*(TextField(column, column.capitalize()) for column in self.columns), top_field(10)]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        first = ["I liked every minute of it.", "It was a waste of time.", "Where does the river begin?"]
        second = ["It was great.", "It was well worth the time.", "The river begins in the mountains."]
        return [list(pair)[: len(self.columns)] for pair in zip(first, second, strict=True)]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        scores = self.scores(texts)
        if len(scores) == 1:
            ((name, value),) = scores.items()
            return [Ranking(f"{name} (a number)", [Entry(name, value, is_share=False)])]
        ranked = sorted(scores.items(), key=lambda pair: -pair[1])[: int(numbers["top"])]
        return [Ranking("Labels", [Entry(name, value) for name, value in ranked])]

    def scores(self, texts: Sequence[str]) -> dict[str, float]:
        """Return the probability of each label, or the number of a regression by its name."""
        if self.model.task is None:
            return self.scores_of_head(texts)
        prediction = predict_row(self.model, dict(zip(self.columns, texts, strict=True)))
        return prediction.get("scores", prediction)

    def scores_of_head(self, texts: Sequence[str]) -> dict[str, float]:
        """Return what the head of a stock model says, by its `problem_type`."""
        logits = self.model.model(**self.model.inputs(*texts)).logits[0].float()
        config = self.model.config
        if config.problem_type == "multi_label_classification":
            logits = logits.sigmoid()
        elif len(logits) > 1 and config.problem_type != "regression":
            logits = logits.softmax(dim=-1)
        return {str(config.id2label[number]): value for number, value in enumerate(logits.tolist())}


class Tag(Ability):
    """A label for every word."""

    name = "tag"
    title = "Label words"
    action = "Label the words"
    about = "The model labels every word; words without a label of their own stay plain."

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        named = type(model.model).__name__.endswith("ForTokenClassification")
        return isinstance(model.task, Tagging) or (named and bool(model.tokenizer.is_fast))

    @property
    def fields(self) -> Sequence[Field]:
        return [TextField("text", "A text", lines=3)]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        return [
            ["Marie Curie was born in Warsaw and worked in Paris."],
            ["The European Commission met in Brussels on Monday."],
        ]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        words = WORD.findall(texts[0])
        if not words:
            raise ValueError(f"{texts[0].strip()!r:.80} has no words: write a sentence")
        labels = self.labels(words)
        return [Passage("Labels of the words", labelled_pieces(texts[0], words, labels))]

    def labels(self, words: list[str]) -> list[str]:
        if isinstance(self.model.task, Tagging):
            recipe = self.model.task.recipe
            return predict_row(self.model, {recipe.words: words})[recipe.tags]
        has_types = getattr(self.model.config, "type_vocab_size", 0) > 1
        encoder = TextEncoder(self.model.tokenizer, self.model.max_length, has_token_types=has_types)
        encoded = encoder.encode_words([words])
        ids = torch.from_numpy(encoded["input_ids"].values)[None].to(self.model.device)
        outputs = self.model.model(input_ids=ids)
        # The best label of each word need not be that of the best sequence, which a tagger finds.
        best = (outputs.tags if "tags" in outputs else outputs.logits.argmax(dim=-1))[0].tolist()
        labels = [OUTSIDE] * len(words)
        for token, word in enumerate(encoded["words"].values.tolist()):
            if word >= 0:
                labels[word] = self.model.config.id2label[best[token]]
        return labels


class Answer(Ability):
    """The part of a text that answers a question."""

    name = "answer"
    title = "Answer questions"
    action = "Find the answer"
    about = "The model marks the part of the text that answers your question."

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        named = type(model.model).__name__.endswith("ForQuestionAnswering")
        return isinstance(model.task, QuestionAnswering) or (named and bool(model.tokenizer.is_fast))

    @property
    def fields(self) -> Sequence[Field]:
        return [TextField("question", "Question", lines=1), TextField("context", "Text", lines=5)]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        text = "The Danube rises in the Black Forest in Germany and flows into the Black Sea."
        return [["Where does the Danube rise?", text], ["Into what does the Danube flow?", text]]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        question, context = texts
        begin, end, score = self.best(question, context)
        answer = context[begin:end]
        pieces = [Run(context[:begin]), Run(answer, "new"), Run(context[end:])]
        shown = Ranking("Answer", [Entry(answer or "(the text has no answer)", score)])
        return [shown, Passage("In the text", [piece for piece in pieces if piece.text])]

    def best(self, question: str, context: str) -> tuple[int, int, float]:
        """Return where the most probable answer begins and ends, and its probability."""
        if isinstance(self.model.task, QuestionAnswering):
            recipe = self.model.task.recipe
            found = predict_row(self.model, {recipe.question: question, recipe.context: context})
            begin = found["answer_start"] or 0
            return begin, begin + len(found["answer"]), found["score"]
        encoded = self.model.tokenizer(question, context, return_offsets_mapping=True)
        outputs = self.model.model(**self.model.inputs(question, context))
        inside = torch.tensor([part == 1 for part in encoded.sequence_ids(0)], device=self.model.device)
        table = span_probabilities(outputs.start_logits[0], outputs.end_logits[0], inside)
        first, last = divmod(int(table.argmax()), table.shape[1])
        offsets = cast(list[tuple[int, int]], encoded["offset_mapping"])
        return offsets[first][0], offsets[last][1], float(table.max())


class Choose(Ability):
    """The best of several texts, given one."""

    name = "choose"
    title = "Choose"
    action = "Choose"
    about = "The model chooses the text that fits best, as it was fine-tuned to."

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        return isinstance(model.task, MultipleChoice)

    @property
    def fields(self) -> Sequence[Field]:
        return [
            TextField("text", "Question or beginning"),
            TextField("choices", "Choices, one in a line", lines=6),
        ]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        return [["It rained all night, so", "the street was wet.\nthe street was dry."]]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        assert isinstance(self.model.task, MultipleChoice)
        recipe, choices = self.model.task.recipe, lines_of(texts[1])
        if not 2 <= len(choices) <= MOST_ANSWERS:
            raise ValueError(f"there are {len(choices)} choices: write from 2 to {MOST_ANSWERS} lines")
        scores = predict_row(self.model, {recipe.text: texts[0], recipe.choices: choices})["scores"]
        ranked = sorted(zip(choices, scores, strict=True), key=lambda pair: -pair[1])
        result: list[Result] = [Ranking("Choices", [Entry(*pair) for pair in ranked])]
        return [*result, Note("The probabilities are those among the choices.")]


def labelled_pieces(text: str, words: Sequence[str], labels: Sequence[str]) -> list[Run]:
    """Cut a text at its words, each with its label; words without one are given text.

    >>> labelled_pieces("In Rome.", ["In", "Rome", "."], ["O", "B-PLACE", "O"])
    [Run(text='In ', role='plain', label=''), Run(text='Rome', role='labelled', label='B-PLACE'), ...]
    """
    pieces: list[Run] = []
    end = 0
    for word, label in zip(words, labels, strict=True):
        begin = text.index(word, end)
        labelled = Run(word) if label == OUTSIDE else Run(word, "labelled", label)
        pieces += [Run(text[end:begin]), labelled]
        end = begin + len(word)
    pieces.append(Run(text[end:]))
    return joined(pieces)


def joined(pieces: Sequence[Run]) -> list[Run]:
    """Join pieces of given text that stand beside each other."""
    whole: list[Run] = []
    for piece in pieces:
        if whole and piece.role == "plain" == whole[-1].role:
            whole[-1] = Run(whole[-1].text + piece.text)
        elif piece.text:
            whole.append(piece)
    return whole


def span_probabilities(starts: Tensor, ends: Tensor, inside: Tensor) -> Tensor:
    """Compute the probability of each span, (T, T), by the logits (T) of its first and its last token.

    Spans outside the text, that end before they begin or that are too long, have none.
    """
    masked = (logits.float().masked_fill(~inside, -torch.inf).softmax(dim=0) for logits in (starts, ends))
    first, last = masked
    return (first[:, None] * last[None]).triu().tril(LONGEST_ANSWER - 1)
