"""Labels of words that begin an entity, at the tokens behind a word's first one.

    words            New         York         read as bytes      N     e     w     _     Y     o   ...
    labels           B-LOC       I-LOC                         B-LOC I-LOC I-LOC I-LOC I-LOC I-LOC ...

In the scheme IOB2 (Tjong Kim Sang and Veenstra, 1999) a "B-" begins an entity wherever it stands. If every
token of a word had the word's label, `pipeline("token-classification")` would find an entity at each of them.

Shapes: N tokens, L labels.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

BEGIN, INSIDE = "B-", "I-"


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

    Args:
        log_probabilities: Of each label at each token (N, L), where all tokens of a word have its own.
        is_first: True at the first token of each word, (N,).
        labels: Their names by number.

    Returns:
        (N, L): behind a word's first token, what was probable as the beginning of an entity is so as its
        inside. Other labels keep their probability.
    """
    pairs = begin_and_inside(labels)
    if not pairs:
        return log_probabilities
    begin, inside = torch.tensor(pairs, device=log_probabilities.device).T
    behind = log_probabilities.clone()
    behind[:, inside] = torch.logaddexp(log_probabilities[:, begin], log_probabilities[:, inside])
    behind[:, begin] = torch.finfo(behind.dtype).min
    return torch.where(is_first[:, None], log_probabilities, behind)
