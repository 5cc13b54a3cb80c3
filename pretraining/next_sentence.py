"""Masked language modeling with next-sentence prediction (BERT; Devlin et al., 2019, section 3.1).

    [CLS] the man went to the store [SEP] he bought a gallon of milk [SEP]      0: B is what follows A
    [CLS] the man went to the store [SEP] penguins are flightless birds [SEP]   1: B is from another document

A and B are runs of whole sentences that fill the sequence; pairs are drawn as by `create_pretraining_data.py`
of the paper's code: a stretch of a document is cut at a random sentence, and half of the time its rest is
replaced by a random one and goes back to be used next; one tenth of the pairs is shorter; what is too long is
cut at the ends.

Deviations: a stretch has two sentences where the document has two left; the random document is never A's own;
a random B is about as long as the B that it replaces, so that lengths do not tell the label; a last sentence
left alone, whose B must be random, is made up for by other pairs, so that the labels stay 50/50; pairs are
drawn anew for every epoch.

Legend: P pairs of an epoch, S packed sequences (pairs) of a batch, D documents, n chosen tokens.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..training.examples import PackableExamples, PackedExamples, gather
from ..training.objective import IGNORE, Batch, Example, Objective
from ..training.packing import Ragged, stretches
from .corpus import TokenizedCorpus
from .masked_language_modeling import MaskedLanguageModeling
from .rates import check_share
from .special_tokens import required_token_id
from .token_scores import target_positions, token_scores, without_targets

NEXT, RANDOM = 0, 1
"""The labels, as in `BertForPreTraining`."""

BLOCK = 2**17
"""Sentences, about, whose pairs are drawn at once: few enough to need little memory."""


@dataclass(frozen=True, eq=False)
class SentencePairs(PackableExamples):
    """The pairs of one epoch, as places in a corpus: `Examples` of the layout `[CLS] A [SEP] B [SEP]`."""

    corpus: TokenizedCorpus
    cls_id: int
    sep_id: int
    first: np.ndarray
    """Where A begins and ends among the corpus's tokens (P, 2)."""
    second: np.ndarray
    """Where B begins and ends (P, 2)."""
    labels: np.ndarray
    """`NEXT` or `RANDOM` (P,)."""

    @property
    def lengths(self) -> np.ndarray:
        """Count the tokens of each pair with its special tokens (P,)."""
        return (self.first[:, 1] - self.first[:, 0]) + (self.second[:, 1] - self.second[:, 0]) + 3

    def __len__(self) -> int:
        """Count the pairs, P."""
        return len(self.labels)

    def __getitem__(self, index: int) -> Example:
        """Make one pair."""
        a, b = slice(*self.first[index]), slice(*self.second[index])
        tokens, words = self.corpus.tokens, self.corpus.word_starts
        cls, sep = [self.cls_id], [self.sep_id]
        input_ids = np.concatenate([cls, tokens[a], sep, tokens[b], sep], dtype=np.int32)
        split = a.stop - a.start + 2
        return {
            "input_ids": input_ids,
            "token_type_ids": (np.arange(len(input_ids)) >= split).astype(np.int32),
            "word_starts": np.concatenate([[True], words[a], [True], words[b], [True]]),
            "next_sentence_label": int(self.labels[index]),
            "index": index,
        }

    def pack(self, indices: np.ndarray) -> PackedExamples:
        """Prepare many pairs at once, each as `__getitem__` defines it."""
        first, second = self.first[indices], self.second[indices]
        # [CLS] A [SEP] and B [SEP] are stretches of the corpus, longer than A and B where the signs stand.
        starts = np.stack([first[:, 0] - 1, second[:, 0]], axis=1).ravel()  # (2 P,)
        sizes = np.stack([first[:, 1] - first[:, 0] + 2, second[:, 1] - second[:, 0] + 1], axis=1).ravel()
        lengths, ends = sizes.reshape(-1, 2).sum(axis=1), sizes.cumsum()

        def take(values: np.ndarray, cls: int, sep: int) -> np.ndarray:
            taken = values.take(stretches(starts, sizes), mode="clip")
            taken[(ends - sizes)[::2]], taken[ends - 1] = cls, sep
            return taken

        makers = {
            "input_ids": lambda: Ragged(take(self.corpus.tokens, self.cls_id, self.sep_id), lengths),
            "word_starts": lambda: Ragged(take(self.corpus.word_starts, True, True), lengths),
            "token_type_ids": lambda: Ragged(np.repeat(np.arange(len(sizes)) % 2, sizes), lengths),
            "next_sentence_label": lambda: Ragged(self.labels[indices], np.ones_like(indices)),
        }
        return PackedExamples(self, indices, makers)


class NextSentencePairs:
    """An `ExampleSource` of sentence pairs, drawn anew from (`seed`, epoch); every document begins some.

    Args:
        corpus: At least two documents.
        tokenizer: Has [CLS] and [SEP].
        sequence_length: The most tokens of a pair, special ones included.
        seed: Of all draws.
        short_rate: Share of pairs that aim at a random, shorter length, so that the model meets such too.
    """

    def __init__(
        self,
        corpus: TokenizedCorpus,
        tokenizer: PreTrainedTokenizerBase,
        sequence_length: int,
        seed: int,
        short_rate: float = 0.1,
    ):
        self.corpus = corpus
        self.cls_id = required_token_id(tokenizer, "cls", "next-sentence prediction")
        self.sep_id = required_token_id(tokenizer, "sep", "next-sentence prediction")
        self.budget = sequence_length - 3
        self.seed = seed
        self.short_rate = check_share("short_rate", short_rate)
        if self.budget < 2:
            raise ValueError(
                f"sequence_length is {sequence_length}, but [CLS] A [SEP] B [SEP] has 5 or more: raise it"
            )
        bounds = np.stack([corpus.document_offsets[:-1], corpus.document_offsets[1:]], axis=1)
        self.documents = bounds[bounds[:, 1] > bounds[:, 0]]  # (D, 2), into sentences
        if len(self.documents) < 2:
            raise ValueError(
                f"next-sentence prediction draws sentences from other documents, but the corpus has "
                f"{len(self.documents)}: put a blank line between documents, or choose "
                f"masked_language_modeling"
            )

    def epoch(self, number: int) -> SentencePairs:
        """Draw the pairs of epoch `number`."""
        rng = np.random.default_rng([self.seed, number])
        order = rng.permutation(len(self.documents))
        sentences = np.diff(self.documents[order]).cumsum()
        blocks = np.split(order, np.flatnonzero(np.diff(sentences // BLOCK)) + 1)
        walk = Walk()
        pairs = zip(*(self.block(documents, walk, rng) for documents in blocks), strict=True)
        first, second, labels = (np.concatenate(parts) for parts in pairs)
        return SentencePairs(self.corpus, self.cls_id, self.sep_id, first, second, labels)

    def block(
        self, documents: np.ndarray, walk: "Walk", rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw the pairs of some documents (D,): A's and B's places, (P, 2) each, and the labels (P,).

        First a pair is drawn for every sentence, as if it began one; then the walk tells which ones do.
        """
        offsets = self.corpus.sentence_offsets
        first, last = self.documents[documents].T
        counts = last - first
        start, last = stretches(first, counts), last.repeat(counts)  # of pairs, one for each sentence (S,)
        tokens = np.full(len(start), self.budget)
        is_short = rng.random(len(start)) < self.short_rate
        tokens[is_short] = rng.integers(2, self.budget + 1, size=is_short.sum())
        stop = np.minimum(np.maximum(offsets.searchsorted(offsets[start] + tokens), start + 2), last)
        split = start + 1 + (rng.random(len(start)) * (stop - start - 1)).astype(np.int64)
        is_random = rng.random(len(start)) < 0.5

        shift = start - np.arange(len(start))
        chosen = walk.follow(counts, split - shift, stop - shift, is_random)  # (P,)
        start, split, stop, is_random = start[chosen], split[chosen], stop[chosen], is_random[chosen]
        parts = np.stack([offsets[start], offsets[split], offsets[stop]], axis=1)
        room = np.maximum(tokens[chosen] - (parts[:, 1] - parts[:, 0]), 1)
        rest = parts[:, 2] - parts[:, 1]
        wanted = np.minimum(np.where(rest == 0, room, rest), room)
        a, b = parts[:, :2].copy(), parts[:, 1:].copy()
        b[is_random] = self.elsewhere(documents.repeat(counts)[chosen][is_random], wanted[is_random], rng)
        shorten(a, b, self.budget, rng)
        return a, b, np.where(is_random, RANDOM, NEXT)

    def elsewhere(self, document: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw whole sentences (P, 2) from other documents, until `wanted` (P,) tokens are reached.

        Near the end of a document they begin earlier, so that they do not run out.
        """
        other = rng.integers(len(self.documents) - 1, size=len(document))
        other += other >= document
        first, last = self.documents[other].T
        offsets = self.corpus.sentence_offsets
        latest = np.searchsorted(offsets, offsets[last] - wanted, side="right") - 1
        start = np.maximum(np.minimum(rng.integers(first, last), latest), first)
        stop = np.clip(np.searchsorted(offsets, offsets[start] + wanted), start + 1, last)
        return np.stack([offsets[start], offsets[stop]], axis=1)


class Walk:
    """The way through documents, from pair to pair; it remembers how many random pairs were too many."""

    def __init__(self) -> None:
        self.owed = 0

    def follow(
        self, counts: np.ndarray, split: np.ndarray, stop: np.ndarray, is_random: np.ndarray
    ) -> np.ndarray:
        """Find the sentences at which pairs begin (P,), in documents of `counts` sentences (D,), end to end.

        Where the next pair begins depends on the label of this one, so this is a loop over pairs, in plain
        numbers: behind its A (at `split`, (S,)) if B is random, else behind its B (at `stop`, (S,)).
        `is_random` (S,) is changed where a label has to be.
        """
        chosen, owed, end = array("q"), self.owed, 0
        splits, stops, labels = split.data, stop.data, is_random.data
        for count in counts.tolist():
            start, end = end, end + count
            while start < end:
                chosen.append(start)
                split_here, stop_here = splits[start], stops[start]
                if split_here == stop_here:  # nothing follows: one random pair too many, in half of the cases
                    labels[start] = True
                    owed += 1
                elif labels[start] and owed >= 2:  # a random pair made a true one moves the balance by two
                    labels[start] = False
                    owed -= 2
                start = split_here if labels[start] else stop_here
        self.owed = owed
        return np.frombuffer(chosen, dtype=np.int64)


def shorten(first: np.ndarray, second: np.ndarray, budget: int, rng: np.random.Generator) -> None:
    """Cut both parts (P, 2) in place to `budget` tokens together, a token at a time from the longer one.

    Each token comes off the front or the back by a coin, so that the model does not learn where texts are
    cut.
    """
    a, b = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
    excess = np.maximum(a + b - budget, 0)
    from_longer = np.minimum(excess, np.abs(a - b))
    from_both = excess - from_longer
    cut_a = np.where(a > b, from_longer, 0) + from_both // 2
    cut_b = excess - cut_a
    for part, cut in ((first, cut_a), (second, cut_b)):
        front = rng.binomial(cut, 0.5)
        part[:, 0] += front
        part[:, 1] -= cut - front


class MaskedLanguageModelingWithNextSentence(Objective):
    """Predict hidden tokens, and whether B follows A; the terms are `mlm` and `nsp`, and count alike.

    Args:
        masked_language_modeling: Corrupts the pairs and gives the first term.
    """

    def __init__(self, masked_language_modeling: MaskedLanguageModeling):
        self.weights = {"mlm": 1.0, "nsp": 1.0}
        self.masked_language_modeling = masked_language_modeling

    def collate(self, examples: Sequence[Example], rng: np.random.Generator) -> Batch:
        """Pack and corrupt the pairs; `next_sentence_label` is (S,)."""
        batch = self.masked_language_modeling.collate(examples, rng)
        batch["next_sentence_label"] = torch.from_numpy(gather(examples, "next_sentence_label").values)
        return batch

    def targets(self, batch: Batch) -> dict[str, Tensor]:
        """Count the chosen tokens, and the pairs."""
        pairs = (batch["next_sentence_label"] != IGNORE).sum()
        return self.masked_language_modeling.targets(batch) | {"nsp": pairs}

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Sum the cross-entropy of the chosen tokens, and of the pairs."""
        output = model(**batch, reduction="sum")
        return {"mlm": output.masked_lm_loss, "nsp": output.next_sentence_loss}

    def scores(self, model: nn.Module, batch: Batch) -> dict[str, dict[str, Tensor]]:
        """Score the chosen tokens, computing no other token's logits, and the pairs."""
        labels, pair_labels = batch["labels"], batch["next_sentence_label"]
        positions = target_positions(labels, IGNORE)
        inputs = without_targets(batch, "labels", "next_sentence_label")
        output = model(**inputs, logits_to_keep=positions)
        return {
            "mlm": token_scores(output.prediction_logits[0], labels[0, positions]),
            "nsp": token_scores(output.seq_relationship_logits, pair_labels),
        }
