"""Word vectors of several pretrained models beside each other, as features of a tagger.

    sentences -> embedder 1 | embedder 2 | ... -> one vector for each word

Akbik et al., 2018, call this stacked embeddings. While the embedders are frozen, a sentence has the same
vectors whenever it is read: `remember` computes them once, before a run, and they are looked up in every
epoch. They are kept for one set of weights in a process, so that the runs of several seeds share them.

Shapes: W words of a sentence, R width of all embedders together.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from .word_embedders import WordEmbedder, build_embedder

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
        self.known: tuple[list[tuple[int, int]], str] | None = None
        self.train()

    @property
    def parts(self) -> list[WordEmbedder]:
        """The embedders."""
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
        """Compute the vectors (W, R) of each sentence's words."""
        parts = zip(*(part.embed(sentences) for part in self.parts), strict=True)
        return [torch.cat(each, dim=-1) for each in parts]

    def digest(self) -> str:
        """Return a digest of descriptions and weights, computed again when torch has changed one."""
        tensors = [*self.parameters(), *self.buffers()]
        state = [(tensor.data_ptr(), tensor._version) for tensor in tensors]
        if self.known is None or self.known[0] != state:
            digest = hashlib.blake2b(repr(self.descriptions).encode(), digest_size=16)
            for name, tensor in self.state_dict().items():
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
            self.known = state, digest.hexdigest()
        return self.known[1]
