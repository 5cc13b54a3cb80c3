"""The tagger: word vectors of pretrained models, a bidirectional LSTM, and a conditional random field.

    words -> vectors of each embedder, beside each other -> BiLSTM -> scores of labels -> the best sequence

Huang et al., 2015; Lample et al., 2016, section 2, without its LSTM over characters, which word vectors of
characters replace (Akbik et al., 2018). Where an embedder has several layers, as ELMo does, the
tagger learns a scalar mix of them (Peters et al., 2018, section 3.2).

Words come as bytes, so that every embedder sees them as they are: see `recurrent/words.py`.

A linear chain over the labels of a sentence: a conditional random field (Lafferty et al., 2001).

    score(y) = start[y_1] + sum_t emission[t, y_t] + sum_t transition[y_(t-1), y_t] + end[y_W]
    p(y) = exp(score(y)) / Z,   Z = sum of exp(score(y)) over all L^W sequences y

A sentence's loss is -log p of its labels. Where a word has no label, all of its labels are summed over
(Tsuboi et al., 2008), so that the loss is the negative log-likelihood of what is known. As the output layer
of a tagger: Huang et al., 2015; Lample et al., 2016, section 2.2.

Everything is computed word by word, all sentences of a batch at once, in float32. Rows are filled up to the
longest sentence, and nothing depends on what fills them.

Labels of words that begin an entity, at the tokens behind a word's first one.

    words            New         York         read as bytes      N     e     w     _     Y     o   ...
    labels           B-LOC       I-LOC                         B-LOC I-LOC I-LOC I-LOC I-LOC I-LOC ...

In the scheme IOB2 (Tjong Kim Sang and Veenstra, 1999) a "B-" begins an entity wherever it stands. If every
token of a word had the word's label, `pipeline("token-classification")` would find an entity at each of them.

Word vectors of several pretrained models beside each other, as features of a tagger.

    sentences -> embedder 1 | embedder 2 | ... -> one vector for each word

Akbik et al., 2018, call this stacked embeddings. While the embedders are frozen, a sentence has the same
vectors whenever it is read: `remember` computes them once, before a run, and they are looked up in every
epoch. They are kept for one set of weights in a process, so that the runs of several seeds share them.

Shapes: B batch, T positions, S sentences, N words, W words of the longest sentence, R width of all vectors
of a word, C model width, L labels.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import ModelOutput, can_return_tuple

from ..compatibility import known_arguments, version_of
from ..heads.classification import count_labels
from ..heads.losses import (
    IGNORE,
    LOSS_KEYWORDS,
    checked_labels,
    reduce_loss,
    require_plain_loss,
    take_loss_arguments,
)
from ..outputs import Keywords
from ..pretrained import NeuralPreTrainedModel
from .configurations import BEGIN, INSIDE, TercetTaggerConfig
from .elmo import ScalarMix
from .layers import LongShortTermMemory, read_in_full
from .spelling import EvenLinear
from .word_embedders import WordEmbedder, build_embedder
from .words import Words, read_words

SENTENCES_AT_ONCE = 2048
"""Sentences that are embedded between two that are kept."""

Memory = dict[tuple[str, ...], Tensor]
"""Words of a sentence -> their vectors (W, R)."""

KEPT: dict[str, Memory] = {}
"""Digest of the embedders -> what they said of sentences: never more than one entry."""


class WordFeatures(nn.Module):
    """Embedders, frozen or not, and what they have said.

    Args:
        descriptions: One for each embedder.
        is_frozen: Whether the embedders never learn: they are in evaluation and drop nothing.
    """

    def __init__(self, descriptions: Sequence[Mapping[str, Any]], *, is_frozen: bool):
        super().__init__()
        self.embedders = nn.ModuleList(map(build_embedder, descriptions))
        self.descriptions = [dict(each) for each in descriptions]
        self.is_frozen = is_frozen
        self.stays_whole = is_frozen
        """Whether processes that share a model out hold these weights whole: they read them by themselves."""
        self.known: tuple[list[int | None], str] | None = None
        self.train()

    @property
    def parts(self) -> list[WordEmbedder]:
        return [each for each in self.embedders if isinstance(each, WordEmbedder)]

    def train(self, mode: bool = True) -> Self:
        """Switch to training or evaluation; frozen embedders are in evaluation from the first moment on.

        Their weights are frozen here: whoever loads a model puts other parameters in place of the first ones,
        and then sets the mode.
        """
        if self.is_frozen:
            self.requires_grad_(False)
        return super().train(mode and not self.is_frozen)

    def forward(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return the vectors (W, R) of each sentence's words, remembered or computed."""
        if not self.is_frozen:
            return self.compute(sentences)
        keys = [tuple(sentence) for sentence in sentences]
        kept = KEPT.get(self.digest(), {}) if KEPT else {}
        missing = [key for key in dict.fromkeys(keys) if key not in kept]
        found = dict(zip(missing, self.compute_frozen(missing), strict=True)) if missing else {}
        device = next(self.parameters()).device
        return [kept[key].to(device) if key in kept else found[key] for key in keys]

    def remember(self, sentences: Iterable[Sequence[str]]) -> None:
        """Compute the vectors of sentences once, and keep them in memory, 4 R bytes for each word.

        Sentences are computed in their order: the same ones have the same bits in every process, whatever is
        read together later. Nothing is kept of embedders that learn.
        """
        if not self.is_frozen:
            return
        digest = self.digest()
        if digest not in KEPT:
            KEPT.clear()
        kept = KEPT.setdefault(digest, {})
        missing = [key for key in dict.fromkeys(map(tuple, sentences)) if key not in kept]
        for first in range(0, len(missing), SENTENCES_AT_ONCE):
            keys = missing[first : first + SENTENCES_AT_ONCE]
            kept.update(zip(keys, (each.cpu() for each in self.compute_frozen(keys)), strict=True))

    @torch.no_grad()
    def compute_frozen(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Compute vectors in the precision of the weights, whatever that of the model around them is."""
        device = next(self.parameters()).device
        with torch.autocast(device.type, enabled=False):
            return self.compute(sentences)

    def compute(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        parts = zip(*(part.embed(sentences) for part in self.parts), strict=True)
        return [torch.cat(each, dim=-1) for each in parts]

    def digest(self) -> str:
        """Return a digest of descriptions and weights, computed again when torch has changed one."""
        tensors = [*self.parameters(), *self.buffers()]
        state = [number for tensor in tensors for number in (tensor.data_ptr(), version_of(tensor))]
        if self.known is None or None in state or self.known[0] != state:
            digest = hashlib.blake2b(repr(self.descriptions).encode(), digest_size=16)
            for name, tensor in self.state_dict().items():
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
            self.known = state, digest.hexdigest()
        return self.known[1]


class ConditionalRandomField(nn.Module):
    """Scores of L labels beside each other, and of the first and the last one."""

    def __init__(self, num_labels: int):
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))
        self.starts = nn.Parameter(torch.zeros(num_labels))
        self.ends = nn.Parameter(torch.zeros(num_labels))

    def draw(self) -> None:
        for parameter in self.parameters():
            init.zeros_(parameter)

    def negative_log_likelihood(self, emissions: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        """Compute -log p of the labels (S, W) of each sentence, (S,), where `IGNORE` is an unknown label.

        `emissions` (S, W, L) score the labels of each word, of which a sentence has `lengths` (S,); one
        without words has no loss.
        """
        emissions = emissions.float()
        is_known = (labels != IGNORE) | (places(emissions) >= lengths[:, None])
        if is_known.all():
            right = self.score(emissions, lengths, labels.clamp(min=0))
        else:
            right = self.log_partition(allow_only(emissions, labels), lengths)
        return (self.log_partition(emissions, lengths) - right).masked_fill(lengths == 0, 0.0)

    def score(self, emissions: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        """Score one sequence of labels (S, W) for each sentence, (S,)."""
        is_word = places(emissions) < lengths[:, None]
        of_words = emissions.gather(-1, labels[..., None]).squeeze(-1)
        of_pairs = self.transitions[labels[:, :-1], labels[:, 1:]]
        last = labels.gather(1, (lengths[:, None] - 1).clamp(min=0)).squeeze(1)
        # Summed in float32 as in `log_partition`, or a probability could exceed 1 in half precision.
        pairs = of_pairs.masked_fill(~is_word[:, 1:], 0).sum(1, dtype=emissions.dtype)
        return self.starts[labels[:, 0]] + of_words.masked_fill(~is_word, 0).sum(1) + pairs + self.ends[last]

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Sum exp(score) over all sequences of labels, log Z (S,)."""
        return (self.prefixes(emissions, lengths)[-1] + self.ends).logsumexp(-1)

    def prefixes(self, emissions: Tensor, lengths: Tensor) -> list[Tensor]:
        """Sum, for each word and label, the sequences up to this word that end in the label: W times (S, L).

        Behind the end of a sentence its last sums are repeated.
        """
        first, *others = emissions.unbind(1)
        sums = [self.starts + first]
        for place, scores in enumerate(others, start=1):
            longer = (sums[-1][..., None] + self.transitions).logsumexp(1) + scores
            sums.append(torch.where((place < lengths)[:, None], longer, sums[-1]))
        return sums

    def suffixes(self, emissions: Tensor, lengths: Tensor) -> list[Tensor]:
        """Sum, for each word and label, what may follow this label behind this word: W times (S, L)."""
        sums = [self.ends.expand(len(emissions), -1)]
        for place in range(emissions.shape[1] - 1, 0, -1):
            following = (emissions[:, place] + sums[-1])[:, None] + self.transitions
            sums.append(torch.where((place < lengths)[:, None], following.logsumexp(-1), sums[-1]))
        return sums[::-1]

    def log_marginals(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Return the log-probability of each label of each word, (S, W, L), whatever the other labels are."""
        emissions = emissions.float()
        before, behind = self.prefixes(emissions, lengths), self.suffixes(emissions, lengths)
        joint = torch.stack([*map(torch.add, before, behind)], dim=1)
        return joint.log_softmax(-1)

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Find the labels with the highest score (Viterbi, 1967), (S, W); `IGNORE` behind their end."""
        first, *others = emissions.float().unbind(1)
        best, origins = self.starts + first, []
        unchanged = torch.arange(len(self.starts), device=emissions.device)
        for place, scores in enumerate(others, start=1):
            longer, origin = (best[..., None] + self.transitions).max(1)
            goes_on = (place < lengths)[:, None]
            best = torch.where(goes_on, longer + scores, best)
            origins.append(torch.where(goes_on, origin, unchanged))
        labels = [(best + self.ends).argmax(-1)]
        for origin in reversed(origins):
            labels.append(origin.gather(1, labels[-1][:, None]).squeeze(1))
        found = torch.stack(labels[::-1], dim=1)
        return found.masked_fill(places(emissions) >= lengths[:, None], IGNORE)


def places(emissions: Tensor) -> Tensor:
    """Number the words of a row, (W,)."""
    return torch.arange(emissions.shape[1], device=emissions.device)


def allow_only(emissions: Tensor, labels: Tensor) -> Tensor:
    """Return labels (S, W) other than the known one of a word the score -infinity, (S, W, L)."""
    numbers = torch.arange(emissions.shape[-1], device=emissions.device)
    is_other = (labels != IGNORE)[..., None] & (labels[..., None] != numbers)
    return emissions.masked_fill(is_other, -torch.inf)


def begin_and_inside(labels: Mapping[int, str]) -> list[tuple[int, int]]:
    """Find the numbers of labels that begin an entity, each with the one that continues it.

    >>> begin_and_inside({0: "O", 1: "B-LOC", 2: "I-LOC", 3: "B-PER"})
    [(1, 2)]
    """
    numbers = {name: number for number, name in labels.items()}
    return [
        (number, numbers[inside])
        for name, number in numbers.items()
        if name.startswith(BEGIN) and (inside := INSIDE + name.removeprefix(BEGIN)) in numbers
    ]


def continued(log_probabilities: Tensor, is_first: Tensor, labels: Mapping[int, str]) -> Tensor:
    """Let entities begin at the first tokens of words alone.

    Where log-probabilities (N, L) say that a word most probably begins an entity, the tokens behind its first
    one, by `is_first` (N,), have that probability for the entity's inside, and the inside's for its
    beginning. All else stays. `labels` are the names by number.
    """
    pairs = begin_and_inside(labels)
    if not pairs:
        return log_probabilities
    begin, inside = torch.tensor(pairs, device=log_probabilities.device).T
    behind = torch.arange(log_probabilities.shape[-1], device=log_probabilities.device)
    behind[begin] = inside
    best = log_probabilities.argmax(-1, keepdim=True)
    exchanged = torch.cat([best, behind[best]], dim=-1).where(~is_first[:, None], best)
    return log_probabilities.scatter(1, exchanged, log_probabilities.gather(1, exchanged.flip(-1)))


class SentenceDropout(nn.Module):
    """Drop whole words, and channels of all words of a sentence (Gal and Ghahramani, 2016).

    Args:
        words: Probability that a word is dropped; the others are not scaled.
        channels: Probability that a channel is dropped; the others are scaled by 1 / (1 - p).
    """

    def __init__(self, words: float, channels: float):
        super().__init__()
        self.words = words
        self.channels = channels

    def forward(self, x: Tensor, words: Words) -> Tensor:
        """Drop some of the vectors (N, C) of words."""
        if not self.training:
            return x
        if self.words:
            x = x * (torch.rand(len(x), 1, device=x.device) >= self.words)
        if self.channels:
            factors = F.dropout(x.new_ones(len(words.lengths), x.shape[-1]), self.channels)
            x = x * factors[words.sequence]
        return x


class BidirectionalLayer(nn.Module):
    """An LSTM that reads sentences forwards, and one that reads them backwards."""

    def __init__(self, input_width: int, direction_width: int):
        super().__init__()
        self.forwards = LongShortTermMemory(input_width, direction_width, batch_first=True)
        self.backwards = LongShortTermMemory(input_width, direction_width, batch_first=True)

    def forward(self, x: Tensor, words: Words) -> Tensor:
        """Read vectors (N, R) of words: the states of both directions beside each other, (N, C)."""
        directions = ((self.forwards, False), (self.backwards, True))
        states = [
            words.from_rows(
                read_in_full(lstm, words.rows(x, is_reversed=is_reversed))[0], is_reversed=is_reversed
            )
            for lstm, is_reversed in directions
        ]
        return torch.cat(states, dim=-1)


class TercetTaggerPreTrainedModel(NeuralPreTrainedModel):
    """What transformers needs to know of a tagger. Abstract."""

    config: TercetTaggerConfig

    def get_input_embeddings(self) -> nn.Module:
        raise NotImplementedError("a tagger has no table of token vectors: its words come as bytes")

    def remember(self, sentences: Iterable[Sequence[str]]) -> None:
        """Compute the word vectors of sentences once, for all epochs: see `WordFeatures.remember`."""
        features = self.base_model.get_submodule("features")
        assert isinstance(features, WordFeatures)
        features.remember(sentences)

    def remember_tokens(self, input_ids: Tensor, edges: Tensor) -> None:
        """Do the same for packed sentences of bytes (1, N), which begin and end at `edges` (S + 1,)."""
        self.remember(read_words(input_ids, cu_seq_lens=edges)[1])


class TercetTaggerModel(TercetTaggerPreTrainedModel):
    """Word vectors and the layers that read them: states of words in their sentence.

    Example:
        >>> import torch
        >>> from tercet import TercetTaggerConfig, TercetTaggerModel
        >>> model = TercetTaggerModel(TercetTaggerConfig(hidden_size=32)).eval()
        >>> model(torch.tensor([[1 + byte for byte in b"two words"]])).last_hidden_state.shape
        torch.Size([1, 9, 32])
    """

    def __init__(self, config: TercetTaggerConfig):
        super().__init__(config)
        assert config.embeddings is not None
        self.features = WordFeatures(config.embeddings, is_frozen=config.freezes_embeddings)
        parts = self.features.parts
        self.widths = [part.num_layers * part.width for part in parts]
        self.mixes = nn.ModuleList(
            ScalarMix(part.num_layers) if part.num_layers > 1 else nn.Identity() for part in parts
        )
        width = sum(part.width for part in parts)
        self.input_dropout = SentenceDropout(config.word_dropout, config.dropout)
        self.projection = (
            EvenLinear(width, config.projection_size) if config.projection_size else nn.Identity()
        )
        widths = [config.projection_size or width] + [config.hidden_size] * (config.num_hidden_layers - 1)
        self.layers = nn.ModuleList(BidirectionalLayer(each, config.direction_width) for each in widths)
        self.dropout = SentenceDropout(0.0, config.dropout)
        self.post_init()

    @known_arguments()
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        **kwargs: Keywords,
    ) -> BaseModelOutput:
        """States (B, T, C) of bytes (B, T): each byte has the state of its word, pads have zeros.

        See `read_words` for the inputs. Of `kwargs`, `output_hidden_states` asks for what each layer reads
        and says: the words' vectors, of their own width, and the states of all layers.
        """
        words, texts = read_words(input_ids, attention_mask, position_ids, cu_seq_lens_q)
        record: list[Tensor] | None = [] if self.records("output_hidden_states", kwargs) else None
        states = self.read(words, texts, record)
        if record is None:
            return BaseModelOutput(last_hidden_state=words.to_tokens(states))
        return BaseModelOutput(last_hidden_state=record[-1], hidden_states=tuple(record))

    def read(
        self, words: Words, texts: Sequence[Sequence[str]], record: list[Tensor] | None = None
    ) -> Tensor:
        """Compute the states (N, C) of words; what each layer reads and says is added to a record."""
        weight = next(self.layers.parameters())
        vectors = torch.cat(self.features([text for text in texts if text])).to(weight.device, weight.dtype)
        x = self.input_dropout(self.mixed(vectors), words)
        x = self.projection(x)
        for layer in self.layers:
            x = self.dropout(layer(words.recorded(x, record), words), words)
        return words.recorded(x, record)

    def mixed(self, vectors: Tensor) -> Tensor:
        """Mix the layers of each embedder: (N, R) -> one vector of each, beside each other."""
        parts = zip(vectors.split(self.widths, dim=-1), self.mixes, self.features.parts, strict=True)
        return torch.cat(
            [
                mix(own.chunk(part.num_layers, dim=-1)) if part.num_layers > 1 else own
                for own, mix, part in parts
            ],
            dim=-1,
        )


@dataclass
class TercetTaggerOutput(ModelOutput):
    """What a tagger says of a batch.

    Args:
        loss: Negative log-likelihood of the labels.
        logits: Log-probability of each label of each token's word, (B, T, L), whatever the labels of other
            words are; absent in training with labels. Behind a word's first token, a likeliest "B-" label
            exchanges its own with that of its "I-": see `continued`.
        tags: The best sequence of labels, at every token that of its word, (B, T), -100 at pads; absent in
            training with labels.
        hidden_states: What the first layer reads and what each layer says, (B, T, ...), if requested.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    tags: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class TercetTaggerForTokenClassification(TercetTaggerPreTrainedModel):
    """Labels of words, all words of a sentence together.

    Example:
        >>> import torch
        >>> from tercet import TercetTaggerConfig, TercetTaggerForTokenClassification
        >>> config = TercetTaggerConfig(hidden_size=32, num_labels=3)
        >>> model = TercetTaggerForTokenClassification(config).eval()
        >>> model(torch.tensor([[1 + byte for byte in b"two words"]])).tags.shape
        torch.Size([1, 9])
    """

    def __init__(self, config: TercetTaggerConfig):
        super().__init__(config)
        self.model = TercetTaggerModel(config)
        self.classifier = EvenLinear(config.hidden_size, count_labels(config))
        self.crf = ConditionalRandomField(count_labels(config))
        self.post_init()

    @known_arguments(*LOSS_KEYWORDS)
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Keywords,
    ) -> TercetTaggerOutput:
        """Label words.

        Args:
            input_ids: See `read_words` for the inputs.
            attention_mask: (B, T), 0 at pads.
            position_ids: (B, T).
            cu_seq_lens_q: Cumulative lengths (S+1,) of packed sentences.
            labels: (B, T), read where a word begins; -100 there: its label is unknown.
            **kwargs: `reduction` and `num_items_in_batch`, where an item is a word with a label, and
                `output_hidden_states`, as `TercetTaggerModel.forward` has it.
        """
        loss_arguments = take_loss_arguments(kwargs)
        require_plain_loss("the labelling of a sentence", loss_arguments)
        words, texts = read_words(input_ids, attention_mask, position_ids, cu_seq_lens_q)
        record: list[Tensor] | None = [] if self.records("output_hidden_states", kwargs) else None
        scores = self.classifier(self.model.read(words, texts, record))
        outputs = TercetTaggerOutput(hidden_states=None if record is None else tuple(record))
        emissions = words.rows(scores, is_reversed=False)
        if labels is not None:
            known = checked_labels(labels, scores.shape[-1]).flatten()[words.positions]
            rows = words.rows(known[:, None], is_reversed=False).squeeze(-1)
            losses = self.crf.negative_log_likelihood(emissions, words.lengths, rows)
            outputs.loss = reduce_loss(losses.sum(), (known != IGNORE).sum(), loss_arguments)
            if self.training:
                return outputs
        marginals = words.from_rows(self.crf.log_marginals(emissions, words.lengths), is_reversed=False)
        tags = words.from_rows(self.crf.decode(emissions, words.lengths)[..., None], is_reversed=False)
        outputs.tags = words.to_tokens(tags - IGNORE).squeeze(-1) + IGNORE
        outputs.logits = self.at_tokens(marginals, words)
        return outputs

    def at_tokens(self, marginals: Tensor, words: Words) -> Tensor:
        """Lay log-probabilities of words (N, L) at tokens, (B, T, L): no entity begins inside a word."""
        logits = words.to_tokens(marginals)
        is_first = torch.zeros(logits.shape[:2].numel(), dtype=torch.bool, device=logits.device)
        is_first[words.positions] = True
        labels = cast(dict[int, str], self.config.id2label or {})
        return continued(logits.flatten(0, 1), is_first, labels).view_as(logits)
