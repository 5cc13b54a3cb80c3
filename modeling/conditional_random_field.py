"""A linear chain over the labels of a sentence: a conditional random field (Lafferty et al., 2001).

    score(y) = start[y_1] + sum_t emission[t, y_t] + sum_t transition[y_(t-1), y_t] + end[y_W]
    p(y) = exp(score(y)) / Z,   Z = sum of exp(score(y)) over all L^W sequences y

A sentence's loss is -log p of its labels. Where a word has no label, all of its labels are summed over
(Tsuboi et al., 2008), so that the loss is the negative log-likelihood of what is known. As the output layer
of a tagger: Huang et al., 2015; Lample et al., 2016, section 2.2.

Everything is computed word by word, all sentences of a batch at once, in float32. Rows are filled up to the
longest sentence, and nothing depends on what fills them.

Shapes: S sentences, W words of the longest one, L labels.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .targets import IGNORE


class ConditionalRandomField(nn.Module):
    """Scores of neighbouring labels, and of the first and the last one.

    Args:
        num_labels: L.
    """

    def __init__(self, num_labels: int):
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))
        self.starts = nn.Parameter(torch.zeros(num_labels))
        self.ends = nn.Parameter(torch.zeros(num_labels))

    def draw(self) -> None:
        """Prefer no sequence of labels."""
        for parameter in self.parameters():
            init.zeros_(parameter)

    def negative_log_likelihood(self, emissions: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        """Compute -log p of the labels of each sentence, (S,).

        Args:
            emissions: Scores of the labels of each word, (S, W, L).
            lengths: Words of each sentence, (S,); one without words has no loss.
            labels: (S, W); `IGNORE` where the label of a word is unknown.
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
        """Give the log-probability of each label of each word, (S, W, L), whatever the other labels are."""
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
    """Give labels (S, W) other than the known one of a word the score -infinity, (S, W, L)."""
    numbers = torch.arange(emissions.shape[-1], device=emissions.device)
    is_other = (labels != IGNORE)[..., None] & (labels[..., None] != numbers)
    return emissions.masked_fill(is_other, -torch.inf)
