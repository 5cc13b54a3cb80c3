"""By how much a model's predictions change when its weights are read as another member.

Every token of a text is predicted once, before and after, and the same question is put to both models:

    next token      at the position before the token; a model that sees later positions sees [MASK] there
    masked token    at the position of the token, which is replaced by [MASK]

The first is what a decoder has learned, the second what an encoder has (Devlin et al., 2019, section 3.1). An
encoder that was a decoder answers the first, which is masked next-token prediction (BehnamGhader et al.,
2024, section 2.2). Perplexity is the exponential of the mean negative log-likelihood of the tokens.

Shapes: T tokens of a text, n of them predicted, V vocabulary, C model width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ...data.tokenizers.tokenizer import frame_ids
from ...modeling import TercetPreTrainedModel
from .members import member_of

Question = Literal["next token", "masked token"]

MOST_TOKENS = 64
"""Of each text."""

ROWS = 16
"""Copies of a text, each with another token to predict, that a model reads at once."""


@dataclass(frozen=True)
class Change:
    """How predictions, or what stands for them, changed.

    Args:
        what: The question, or the states that are compared.
        size: Tokens that were predicted, or states.
        before: Perplexity before; `None` where states are compared, or where only the new model is asked.
        after: Perplexity after.
        agreement: Share of tokens for which both models find the same one likeliest.
        distance: Distance of the states: length of the difference, as a part of the length before.
    """

    what: str
    size: int
    before: float | None = None
    after: float | None = None
    agreement: float | None = None
    distance: float | None = None


@dataclass(frozen=True)
class Probe:
    """Texts as ids, and what a question needs.

    Args:
        texts: Each (T,), a token that opens it included.
        mask_id: Id of the token that hides another one, if there is one.
    """

    texts: Sequence[Tensor]
    mask_id: int | None


def probe_of(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, longest: int) -> Probe:
    """Turn texts into ids, between the tokens that open and close a text where the tokenizer has such."""
    before, after = frame_ids(tokenizer)
    room = min(MOST_TOKENS, longest) - len(before) - len(after)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"][:room] for text in texts]
    rows = [torch.tensor([*before, *each, *after]) for each in ids if len(each) > 1]
    if not rows:
        raise ValueError("no text has two tokens or more: give a longer one with --text")
    mask_id: Any = tokenizer.mask_token_id
    return Probe(rows, mask_id)


def change_of_predictions(
    before: TercetPreTrainedModel, after: TercetPreTrainedModel, question: Question, probe: Probe
) -> Change:
    """Put a question to a model and to what it became, whose decoder also reads the text as its source."""
    expected, ours, tokens = [], [], []
    for text in probe.texts:
        expected.append(answers(before, text, question, probe.mask_id))
        ours.append(answers(after, text, question, probe.mask_id))
        tokens.append(text[1:])
    first, second, labels = torch.cat(expected), torch.cat(ours), torch.cat(tokens)
    return Change(
        question,
        len(labels),
        perplexity(first, labels),
        perplexity(second, labels),
        float((first.argmax(-1) == second.argmax(-1)).double().mean()),
    )


def change_of_states(before: Sequence[Tensor], after: Sequence[Tensor], what: str) -> Change:
    """Compare the states (T, C) of texts before and after."""
    first, second = torch.cat(list(before)).double(), torch.cat(list(after)).double()
    distance = (second - first).norm() / first.norm()
    return Change(what, len(first), distance=float(distance))


def perplexity(log_probabilities: Tensor, labels: Tensor) -> float:
    """Return the exponential of the mean surprise at labels (n,) under log-probabilities (n, V)."""
    return float((-log_probabilities.gather(-1, labels[:, None])).double().mean().exp())


@torch.no_grad()
def answers(model: TercetPreTrainedModel, text: Tensor, question: Question, mask_id: int | None) -> Tensor:
    """Predict every token of a text (T,) but the first: log-probabilities (T - 1, V)."""
    places = torch.arange(1, len(text))
    is_hidden = question == "masked token" or member_of(model) == "encoder"
    if is_hidden and mask_id is None:
        raise ValueError(f"the question {question!r} needs a mask token: add one to the tokenizer")
    found = []
    for part in places.split(ROWS):
        rows = text.repeat(len(part), 1)
        if is_hidden:
            rows[torch.arange(len(part)), part] = int(mask_id or 0)
        read = part - 1 if question == "next token" else part
        logits = logits_of(model, rows, text)
        found.append(logits[torch.arange(len(part)), read].float().log_softmax(-1))
    return torch.cat(found)


def logits_of(model: TercetPreTrainedModel, rows: Tensor, source: Tensor) -> Tensor:
    """Return the logits (n, T, V) of rows (n, T); a sequence-to-sequence model reads the whole text first."""
    if member_of(model) == "seq2seq":
        return model(input_ids=source.repeat(len(rows), 1), decoder_input_ids=rows, use_cache=False).logits
    return model(rows).logits


@torch.no_grad()
def states_of(model: TercetPreTrainedModel, probe: Probe, stack: str = "") -> Iterator[Tensor]:
    """Yield the last states (T, C) of each text, in a model with one stack or in one stack of a model."""
    body: Any = getattr(model, "model", model)
    for text in probe.texts:
        ids = text[None]
        if member_of(model) != "seq2seq":
            yield body(ids).last_hidden_state[0]
        elif stack == "encoder":
            yield body.encoder(ids).last_hidden_state[0]
        else:
            yield body(input_ids=ids, decoder_input_ids=ids, use_cache=False).last_hidden_state[0]
