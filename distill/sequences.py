"""Sequence-level distillation: the teacher's own translations are what the student learns to write.

(Kim and Rush, 2016, section 3.2.) What its beams find most probable is simpler than what people wrote, and
written once: the tokenized translations lie in the cache beside the corpus they are of.

Shapes: D documents.
"""

from pathlib import Path

import numpy as np
import torch

from ..data.cache import cache_folder, key_of, made_once
from ..data.chunks import ParallelPairs
from ..data.corpus import TokenizedCorpus, offsets, save_corpus, token_kind
from ..data.files.problems import Tally
from ..data.steps.examples import ExampleSource
from ..data.tokenizers.special_tokens import required_token_id
from ..modeling import TercetPreTrainedModel
from ..modeling.generation.writing import write
from ..modeling.saved.checkpoint import Checkpoint
from ..pretraining.recipe import CorpusRecipe
from .cache import FixedCopies, hash_of_examples
from .teacher import moved


def written_pairs(
    teacher: Checkpoint,
    model: TercetPreTrainedModel,
    corpus: CorpusRecipe,
    source: ExampleSource,
    num_beams: int,
    device: torch.device,
) -> ParallelPairs:
    """Replace the targets of pairs by what a teacher writes for their sources, or find it in the cache."""
    pairs, longest = require_pairs(source), corpus.sequence_length
    name = key_of(teacher.hash, hash_of_examples(FixedCopies(pairs, 1)), num_beams, longest)
    folder = cache_folder(corpus.cache) / "written" / name
    pad_id = required_token_id(teacher.required_tokenizer(), "pad", "sequence-level distillation")
    made_once(
        folder, lambda target: write_targets(target, moved(model, device), pairs, pad_id, num_beams, longest)
    )
    return ParallelPairs(pairs.source, TokenizedCorpus.load(folder), longest, pairs.closing.tolist())


def require_pairs(source: ExampleSource) -> ParallelPairs:
    """Return a source of pairs, or raise a `ValueError`: of others, a teacher has nothing to write."""
    if isinstance(source, ParallelPairs):
        return source
    raise ValueError(
        "sequences: the teacher generates targets for sources, which only translation has: leave it "
        "out, or use translation"
    )


def write_targets(
    folder: Path,
    model: TercetPreTrainedModel,
    pairs: ParallelPairs,
    pad_id: int,
    num_beams: int,
    longest: int,
) -> None:
    """Write a corpus of a teacher's targets, a document for each source; none for those that are no pair."""
    sources, room = [pairs[index]["input_ids"] for index in range(len(pairs))], longest - len(pairs.closing)
    written = write(model.eval(), sources, pad_id, num_beams=num_beams, max_new_tokens=room)
    documents: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * pairs.target.num_documents
    start = model.config.decoder_start_token_id
    for document, ids in zip(pairs.documents, written, strict=True):
        documents[document] = own_tokens(ids, start, pairs.closing, pad_id)
    vocabulary = model.config.vocab_size
    save_corpus([as_corpus(documents, vocabulary)], folder, vocabulary, Tally())


def own_tokens(ids: np.ndarray, start: int | None, closing: np.ndarray, pad_id: int) -> np.ndarray:
    """Take from what was written the start, and what follows the end of text.

    >>> own_tokens(np.array([9, 5, 6, 1, 0, 0]), 9, np.array([1]), 0).tolist()
    [5, 6]
    """
    ids = ids[1:] if start is not None and len(ids) and ids[0] == start else ids
    ends = np.flatnonzero(np.isin(ids, [*closing.tolist(), pad_id]))
    return ids[: ends[0]] if len(ends) else ids


def as_corpus(documents: list[np.ndarray], vocabulary_size: int) -> TokenizedCorpus:
    """Lay documents end to end, each as one sentence; their bytes are not known, nor needed."""
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    tokens = np.concatenate(documents).astype(token_kind(vocabulary_size))
    return TokenizedCorpus(
        tokens=tokens,
        word_starts=np.zeros(len(tokens), dtype=bool),
        sentence_offsets=offsets(lengths),
        document_offsets=np.arange(len(documents) + 1, dtype=np.int64),
        document_bytes=np.zeros(len(documents), dtype=np.int64),
    )
