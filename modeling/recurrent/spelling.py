"""How tokens are spelled, so that a model that reads characters can be given the ids of tokens.

A vocabulary of words cannot spell others. Those of `tokenizer.kind: words` therefore write an unknown word as
its bytes, each a token: all characters of a text are there, and a model joins the tokens of a word. The
spelling is a table beside the weights, saved with them; it is taken from the tokenizer once.

A word's vector comes from its characters alone (Kim et al., 2016, section 3; Jozefowicz et al., 2016):

    codes -> embeddings -> convolutions -> maximum over places -> highway layers -> projection

So a word that no text of the training had has a vector, too. Words repeat: each is encoded once in a batch.

Shapes: V tokens of the vocabulary, L codes of a word, M real tokens, N words, E width of a character's
vector, F number of all filters, D width of a word's vector.
"""

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase
from transformers import initialization as init
from transformers.convert_slow_tokenizer import bytes_to_unicode

from .configurations import TercetElmoConfig
from .words import (
    BEGIN_OF_SEQUENCE,
    BEGIN_OF_WORD,
    END_OF_SEQUENCE,
    END_OF_WORD,
    FILLER,
    FIRST_CHARACTER,
    NUM_CODES,
    Words,
    codes_of,
)


class CharacterEmbedding(nn.Embedding):
    """A vector for each code, drawn from [-1, 1], as in the paper's implementation."""

    def draw(self) -> None:
        init.uniform_(self.weight, -1.0, 1.0)


class CharacterConvolution(nn.Conv1d):
    """Filters of one width, drawn from [-0.05, 0.05] (Kim et al., 2016), and their best fit in a word."""

    def draw(self) -> None:
        init.uniform_(self.weight, -0.05, 0.05)

    def forward(self, input: Tensor) -> Tensor:
        """Compute the largest response of each filter in a word, (N, E, L) -> (N, filters), at least 0."""
        return F.relu(super().forward(input).amax(-1))


class EvenLinear(nn.Linear):
    """A linear layer whose results have the variance of its input, as in the paper's implementation."""

    def draw(self) -> None:
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
        super().draw()
        init.constant_(self.bias, -2.0)  # negative, as in Srivastava et al., 2015, section 2.2


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


CONTINUES = "##"
"""Before the name of a token that continues a word."""


@dataclass(frozen=True)
class TokenSpelling:
    """What a tokenizer says of its tokens.

    Args:
        codes: The codes of each token's characters, by id.
        continues: Whether the token continues the word before it, (V,).
        is_special: Whether it is no text, so that nothing continues it, (V,).
    """

    codes: list[list[int]]
    continues: Tensor
    is_special: Tensor

    def begins_word(self, input_ids: Tensor) -> Tensor:
        """Return which tokens (B, T) begin a word: all but those that continue one."""
        device = input_ids.device
        return token_begins_word(input_ids, self.continues.to(device), self.is_special.to(device))


class Spelling(nn.Module):
    """The characters of every token as buffers: codes (V, L - 2), their number, and which tokens continue."""

    def __init__(self, config: TercetElmoConfig):
        super().__init__()
        self.longest = config.max_characters_per_word
        shape = config.vocab_size, self.longest - 2
        self.codes: Tensor
        self.num_codes: Tensor
        self.continues: Tensor
        self.is_special: Tensor
        self.register_buffer("codes", torch.zeros(shape, dtype=torch.int16))
        self.register_buffer("num_codes", torch.zeros(config.vocab_size, dtype=torch.int16))
        self.register_buffer("continues", torch.zeros(config.vocab_size, dtype=torch.bool))
        self.register_buffer("is_special", torch.zeros(config.vocab_size, dtype=torch.bool))

    def draw(self) -> None:
        for buffer in self.buffers():
            init.zeros_(buffer)

    def learn(self, spelling: TokenSpelling) -> None:
        if len(spelling.codes) > len(self.codes):
            raise ValueError(
                f"the tokenizer has {len(spelling.codes):,} tokens, but vocab_size is {len(self.codes):,}: "
                "build the model with vocab_size=len(tokenizer)"
            )
        self.draw()
        for token, codes in enumerate(spelling.codes):
            kept = codes[: self.longest - 2]
            self.codes[token, : len(kept)] = torch.tensor(kept, dtype=torch.int16)
            self.num_codes[token] = len(kept)
        self.continues[: len(spelling.codes)] = spelling.continues
        self.is_special[: len(spelling.codes)] = spelling.is_special

    def begins_word(self, input_ids: Tensor) -> Tensor:
        """Return which tokens (B, T) begin a word."""
        if not self.num_codes.any():
            raise ValueError(
                "the model does not know how its tokens are spelled: call model.learn_spelling(tokenizer), "
                "or give character_ids instead of input_ids (see encode_words)"
            )
        return token_begins_word(input_ids, self.continues, self.is_special)

    def spell(self, input_ids: Tensor, words: Words) -> Tensor:
        """Write the words of tokens (B, T): codes (N, L)."""
        ids = input_ids.flatten()[words.tokens]
        lengths = self.num_codes[ids].long()
        begins = lengths.cumsum(0) - lengths  # of each token among all characters
        begin_of_word = begins[words.first_tokens]
        token = torch.repeat_interleave(lengths)
        place = torch.arange(len(token), device=ids.device) - begins[token]  # in the token
        word = words.word_of_token[token]
        column = place + begins[token] - begin_of_word[word]
        num_codes = torch.zeros_like(begin_of_word).index_add(0, words.word_of_token, lengths)
        written = torch.full((len(begin_of_word), self.longest), FILLER, device=ids.device)
        written[:, 0] = BEGIN_OF_WORD
        fits = column < self.longest - 2
        written[word[fits], column[fits] + 1] = self.codes[ids[token], place][fits].long()
        end = num_codes.clamp(max=self.longest - 2)[:, None] + 1
        return written.scatter(1, end, END_OF_WORD)


def token_begins_word(input_ids: Tensor, continues: Tensor, is_special: Tensor) -> Tensor:
    """Return which tokens (B, T) begin a word: those that continue none, and what follows a special token."""
    follows_special = is_special[input_ids].roll(1, dims=-1)
    return ~continues[input_ids] | follows_special


def spelling_of(tokenizer: PreTrainedTokenizerBase) -> TokenSpelling:
    """Read from a tokenizer of words and bytes how its tokens are spelled.

    What opens and closes a text has the codes of begin and end of a sequence; other special tokens are
    spelled as they are named.
    """
    require_words_and_bytes(tokenizer)
    names = {token: name for name, token in tokenizer.get_vocab().items()}
    special = {
        *tokenizer.all_special_ids,
        *(number for number, token in tokenizer.added_tokens_decoder.items() if token.special),
    }
    size = max(names) + 1
    codes = [
        codes_of(names.get(token, "")) if token in special else codes_of_bytes(names.get(token, ""))
        for token in range(size)
    ]
    for role, code in (("cls", BEGIN_OF_SEQUENCE), ("sep", END_OF_SEQUENCE)):
        if (token := getattr(tokenizer, f"{role}_token_id")) is not None:
            codes[token] = [code]
    is_special = torch.zeros(size, dtype=torch.bool)
    is_special[list(special)] = True
    return TokenSpelling(
        codes=codes,
        continues=torch.tensor([names.get(token, "").startswith(CONTINUES) for token in range(size)])
        & ~is_special,
        is_special=is_special,
    )


BYTES = {character: FIRST_CHARACTER + byte for byte, character in bytes_to_unicode().items()}
"""The code of each byte, by the character that byte-level tokenizers (Radford et al., 2019) write it as."""


def codes_of_bytes(name: str) -> list[int]:
    """Return the codes of a token of bytes."""
    return [BYTES[character] for character in name.removeprefix(CONTINUES)]


def require_words_and_bytes(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise a `ValueError` unless a tokenizer knows words, and writes others as their bytes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    model: dict[str, Any] = {} if backend is None else json.loads(backend.to_str())["model"]
    if not model.get("ignore_merges") or model.get("continuing_subword_prefix") != CONTINUES:
        raise ValueError(
            f"this {type(tokenizer).__name__} does not know words and their bytes, which ELMo reads: train "
            "one with tokenizer.kind: words, or give character_ids instead of input_ids (see encode_words)"
        )
