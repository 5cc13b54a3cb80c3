"""Vectors of words from a pretrained model, as features of another one: static, of characters, or of ELMo.

An embedder is given words, and needs no tokenizer: what it has to know of characters or words is saved with
its weights. `describe` and `adopt` make one of a pretrained model.

Shapes: W words of a sentence, R width of what an embedder returns, C states of one layer.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..configuration_neural import NeuralConfig
from ..pretrained import NeuralPreTrainedModel
from .character import SentenceCharacters, TercetCharacterModel, embed_encoded
from .configurations import TercetCharacterConfig, TercetElmoConfig, TercetWordVectorsConfig
from .elmo import TercetElmoModel
from .static_vectors import Lexicon, TercetWordVectorsModel, sizes
from .words import encode_words

ALPHABET = "alphabet"
"""What a description has beside the fields of a configuration, if the model reads characters."""
CODE_POINTS_AT_ONCE = 256
"""Characters that are normalized together, to find those that change."""
EMBEDDED_AT_ONCE = 64
"""Sentences of like length that ELMo reads together."""


class WordEmbedder(nn.Module, ABC):
    """A pretrained model that gives words vectors. Abstract: each kind of model is called in its own way."""

    num_layers: int = 1
    """Layers of states, which lie beside each other in a vector and are to be mixed."""
    width: int
    """C: of a vector, or of each layer."""

    @abstractmethod
    def embed(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return the vectors (W, R) of each sentence's words."""


class StaticEmbedder(WordEmbedder):
    """Vectors of words that do not depend on the sentence."""

    def __init__(self, description: Mapping[str, Any]):
        super().__init__()
        self.model = TercetWordVectorsModel(TercetWordVectorsConfig.from_dict(dict(description)))
        self.width = self.model.config.hidden_size

    def embed(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        return self.model.embed_words(sentences)


class CharacterEmbedder(WordEmbedder):
    """States of a character language model at the ends of words (Akbik et al., 2018)."""

    def __init__(self, description: Mapping[str, Any]):
        super().__init__()
        fields = dict(description)
        alphabet = fields.pop(ALPHABET)
        self.unknown: int = alphabet["unknown"]
        self.end: int = alphabet["end"]
        self.expansions: dict[str, list[int]] = alphabet.get("expansions", {})
        """Ids of characters that become several, as a capital I with a dot in lower case; earlier folders
        have none."""
        self.characters = Lexicon(alphabet["num_characters"], alphabet["num_bytes"])
        self.model = TercetCharacterModel(TercetCharacterConfig.from_dict(fields))
        self.width = 2 * self.model.config.hidden_size

    def embed(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        return embed_encoded(self.model, [self.encode(sentence) for sentence in sentences])

    def encode(self, sentence: Sequence[str]) -> SentenceCharacters:
        """Return the ids of a sentence's characters, as the model's tokenizer does."""
        known, several, unknown = self.characters.entries, self.expansions, self.unknown
        ids = [[several.get(each) or [known.get(each, unknown)] for each in word] for word in sentence]
        words = [[*chain.from_iterable(word)] for word in ids]
        return SentenceCharacters(words, [known.get(" ", unknown)], self.end)


class ElmoEmbedder(WordEmbedder):
    """All layers of ELMo's states (Peters et al., 2018)."""

    def __init__(self, description: Mapping[str, Any]):
        super().__init__()
        self.model = TercetElmoModel(TercetElmoConfig.from_dict(dict(description)))
        self.num_layers = self.model.config.num_hidden_layers + 1
        self.width = self.model.config.hidden_size

    def embed(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        found: dict[int, Tensor] = {}
        for first in range(0, len(order), EMBEDDED_AT_ONCE):
            numbers = order[first : first + EMBEDDED_AT_ONCE]
            found.update(zip(numbers, self.states([sentences[each] for each in numbers]), strict=True))
        return [found[number] for number in range(len(sentences))]

    def states(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return the layers of each sentence's words beside each other, (W, (n + 1) C); differentiable."""
        inputs = encode_words(sentences, self.model.config.max_characters_per_word)
        inputs = {name: value.to(self.model.device) for name, value in inputs.items()}
        layers = torch.cat(self.model(**inputs, output_hidden_states=True).hidden_states, dim=-1)
        return [layers[number, 1 : len(sentence) + 1] for number, sentence in enumerate(sentences)]


EMBEDDERS: dict[str, type[StaticEmbedder] | type[CharacterEmbedder] | type[ElmoEmbedder]] = {
    TercetWordVectorsConfig.model_type: StaticEmbedder,
    TercetCharacterConfig.model_type: CharacterEmbedder,
    TercetElmoConfig.model_type: ElmoEmbedder,
}
"""Type of a model -> how words are embedded by it."""


def build_embedder(description: Mapping[str, Any]) -> WordEmbedder:
    """Build an embedder with weights that are not learned yet."""
    return EMBEDDERS[description["model_type"]](description)


def describe(config: NeuralConfig, tokenizer: PreTrainedTokenizerBase | None) -> dict[str, Any]:
    """Describe the embedder that a pretrained model makes: configuration, and size of the alphabet."""
    if config.model_type not in EMBEDDERS:
        raise ValueError(
            f"a {config.model_type} gives no word vectors to a tagger: use one of {', '.join(EMBEDDERS)}"
        )
    description = config.to_diff_dict() | {"model_type": config.model_type}
    for name in ("architectures", "auto_map", "dtype", "transformers_version"):
        description.pop(name, None)
    if isinstance(config, TercetElmoConfig):
        # Words come as characters: no token needs a spelling, and ids mean nothing without the vocabulary.
        description = {name: each for name, each in description.items() if not name.endswith("_token_id")}
        description["vocab_size"] = 1
    if isinstance(config, TercetCharacterConfig):
        characters, expansions = alphabet_of(tokenizer)
        num_characters, num_bytes = sizes(characters)
        description[ALPHABET] = {
            "num_characters": num_characters,
            "num_bytes": num_bytes,
            "unknown": cast(PreTrainedTokenizerBase, tokenizer).unk_token_id,
            "end": cast(PreTrainedTokenizerBase, tokenizer).eos_token_id,
            "expansions": expansions,
        }
    return description


def adopt(
    embedder: WordEmbedder, source: NeuralPreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """Load into an embedder the weights of the pretrained model that it was described by."""
    base = cast(NeuralPreTrainedModel, source.base_model)
    tensors = {name: value for name, value in base.state_dict().items() if not name.startswith("spelling.")}
    model = cast(NeuralPreTrainedModel, embedder.model)
    unknown = model.load_state_dict(tensors, strict=False).unexpected_keys
    assert not unknown, unknown
    if isinstance(embedder, CharacterEmbedder):
        embedder.characters.learn(alphabet_of(tokenizer)[0])


def alphabet_of(tokenizer: PreTrainedTokenizerBase | None) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Find the id of each character that a tokenizer knows, capitals of one that drops them included, and the
    ids of each character that the tokenizer makes several of.
    """
    vocabulary = {} if tokenizer is None else tokenizer.get_vocab()
    special = set() if tokenizer is None else {*tokenizer.all_special_tokens}
    characters = {name: number for name, number in vocabulary.items() if name not in special}
    if tokenizer is None or not characters or any(len(name) != 1 for name in characters):
        raise ValueError(
            "a character model needs its own tokenizer, of kind characters: save it in the model's folder"
        )
    if tokenizer.unk_token_id is None or tokenizer.eos_token_id is None:
        raise ValueError("the tokenizer has no unk_token or no eos_token: use that of the character model")
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    changed = {} if normalizer is None else changed_by(normalizer.normalize_str)
    ids = {name: number for name, number in characters.items() if name not in changed}
    ids |= {name: characters[others] for name, others in changed.items() if others in characters}
    unknown = cast(int, tokenizer.unk_token_id)
    expansions = {
        name: [characters.get(other, unknown) for other in others]
        for name, others in changed.items()
        if len(others) > 1
    }
    return dict(sorted(ids.items(), key=lambda entry: (entry[1], entry[0]))), expansions


def changed_by(normalize: Callable[[str], str]) -> dict[str, str]:
    """Find what is made of each character that changes; Python's own lower case may be of another Unicode."""
    changed: dict[str, str] = {}
    for first in range(0, sys.maxunicode + 1, CODE_POINTS_AT_ONCE):
        numbers = range(first, first + CODE_POINTS_AT_ONCE)
        block = "".join(chr(number) for number in numbers if not 0xD800 <= number <= 0xDFFF)
        if normalize(block) != block:
            changed |= {each: normalize(each) for each in block if normalize(each) != each}
    return changed
