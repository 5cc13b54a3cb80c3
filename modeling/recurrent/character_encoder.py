"""A vector for each word from its characters alone (Kim et al., 2016, section 3; Jozefowicz et al., 2016).

    codes -> embeddings -> convolutions -> maximum over places -> highway layers -> projection

So a word that no text of the training had has a vector, too. Words repeat: each is encoded once in a batch.

Shapes: N words, L codes of a word, E width of a character's vector, F number of all filters, D width of a
word's vector.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from .configuration_elmo import TercetElmoConfig
from .word_characters import FILLER, NUM_CODES


class CharacterEmbedding(nn.Embedding):
    """A vector for each code, drawn from [-1, 1], as in the paper's implementation."""

    def draw(self) -> None:
        """Draw the weights."""
        init.uniform_(self.weight, -1.0, 1.0)


class CharacterConvolution(nn.Conv1d):
    """Filters of one width, drawn from [-0.05, 0.05] (Kim et al., 2016), and their best fit in a word."""

    def draw(self) -> None:
        """Draw the weights."""
        init.uniform_(self.weight, -0.05, 0.05)

    def forward(self, input: Tensor) -> Tensor:
        """Compute the largest response of each filter in a word, (N, E, L) -> (N, filters), at least 0."""
        return F.relu(super().forward(input).amax(-1))


class EvenLinear(nn.Linear):
    """A linear layer whose results have the variance of its input, as in the paper's implementation."""

    def draw(self) -> None:
        """Draw the weights."""
        init.normal_(self.weight, std=self.in_features**-0.5)


class Highway(nn.Module):
    """g * relu(W x + b) + (1 - g) * x with the gate g = sigmoid(V x + c) (Srivastava et al., 2015)."""

    def __init__(self, width: int):
        super().__init__()
        self.transform = EvenLinear(width, width)
        self.gate = HighwayGate(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Transform vectors in part: (N, F) -> (N, F)."""
        return torch.lerp(x, F.relu(self.transform(x)), self.gate(x).sigmoid())


class HighwayGate(EvenLinear):
    """The logits of a highway layer's gate, which begins nearly closed."""

    def draw(self) -> None:
        """Draw the weights; the bias is negative, as Srivastava et al. (2015, section 2.2) recommend."""
        super().draw()
        init.constant_(self.bias, -2.0)


class CharacterEncoder(nn.Module):
    """Vectors of words, of half the width of a layer's states: those that each direction reads."""

    def __init__(self, config: TercetElmoConfig):
        super().__init__()
        assert config.character_filters is not None  # every configuration fills it in
        width = config.character_embedding_size
        self.embed_characters = CharacterEmbedding(NUM_CODES, width)
        self.convolutions = nn.ModuleList(
            CharacterConvolution(width, number, size) for size, number in config.character_filters
        )
        num_filters = sum(number for _, number in config.character_filters)
        self.highways = nn.ModuleList(Highway(num_filters) for _ in range(config.num_highway_layers))
        self.projection = EvenLinear(num_filters, config.direction_width)
        self.widest = max(size for size, _ in config.character_filters)

    def forward(self, characters: Tensor) -> Tensor:
        """Encode words, (N, L) -> (N, D): different ones once, and no longer than the longest of them.

        Equals `encode`. Behind the longest word there is room for the widest filter to see fillers alone.
        """
        longest = int((characters != FILLER).sum(-1).amax()) if len(characters) else 0
        distinct, index = characters[:, : longest + self.widest].unique(dim=0, return_inverse=True)
        return self.encode(distinct).index_select(0, index)

    def encode(self, characters: Tensor) -> Tensor:
        """Encode each word by itself, (N, L) -> (N, D): the definition."""
        x = self.embed_characters(characters).transpose(1, 2)
        x = torch.cat([convolution(x) for convolution in self.convolutions], dim=-1)
        for highway in self.highways:
            x = highway(x)
        return self.projection(x)
