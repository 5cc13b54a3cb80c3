"""Near duplicates by datatrove's MinHash (Broder, 1997): of documents that are alike, the first one stays.

    documents -> Signatures -> pairs that are equal in a bucket -> FirstOfEach -> documents to leave out

Each of these, and what leaves documents out, reads whatever files are there, and so begins with `AllDone`.
Clusters are of all that are joined by pairs: the last document of a chain need not be like the first one.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
from datatrove.executor.base import PipelineExecutor
from datatrove.io import DataFolder
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.utils.binaryio import read_tuples_from_file
from datatrove.utils.hashing import HashConfig
from datatrove.utils.text import TextNormConfig, simplify_text
from datatrove.utils.word_tokenizers import WordTokenizer

from ...data.tokenizers.words import word_starts
from .executors import require_done
from .recipe import DeduplicationRecipe


def find_duplicates(
    recipe: DeduplicationRecipe,
    beginning: Sequence[PipelineStep],
    tasks: int,
    folder: str,
    then: Callable[..., PipelineExecutor],
) -> tuple[PipelineExecutor, list[PipelineStep]]:
    """Build what finds near duplicates, and the block that leaves them out.

    Args:
        beginning: Reads and filters.
        folder: For what is found.
        then: Builds an executor of blocks, their tasks, a name, and what has to be done before.

    Returns:
        The last executor, and the blocks to put between filters and writer.
    """
    config = MinhashConfig(
        n_grams=recipe.n_grams,
        num_buckets=recipe.num_buckets,
        hashes_per_bucket=recipe.hashes_per_bucket,
        seed=recipe.seed,
        hash_config=HashConfig(precision=64, hash_fc="sha1"),  # it cannot hash texts by xxhash 4
        norm_config=TextNormConfig(norm_numbers=False),  # else tables and reports of any figures are alike
    )
    words: Any = Words()  # a language is expected, or this
    signatures, pairs, removed = (f"{folder}/{name}" for name in ("signatures", "pairs", "removed"))
    hashing = Signatures(signatures, config, language=words)
    first = then([*beginning, hashing], tasks, "duplicates/1", None)
    buckets = MinhashDedupBuckets(signatures, pairs, config=config)
    second = then([AllDone(f"{folder}/1", tasks), buckets], recipe.num_buckets, "duplicates/2", first)
    clusters = [AllDone(f"{folder}/2", recipe.num_buckets), FirstOfEach(pairs, removed, config=config)]
    third = then(clusters, 1, "duplicates/3", second)
    return third, [AllDone(f"{folder}/3", 1), MinhashDedupFilter(removed)]


class AllDone(PipelineStep):
    """Refuse to begin while tasks before are not done: of a SLURM array in parts, the last is waited for.

    Args:
        folder: The logs of their executor.
    """

    type, name = "check", "all done"

    def __init__(self, folder: str, tasks: int):
        super().__init__()
        self.folder, self.tasks = folder, tasks

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> Any:
        require_done(DataFolder(self.folder), self.tasks)
        return data


class Words(WordTokenizer):
    """Cut texts into the words of our corpora for MinHash, whose own need a package for each language."""

    def word_tokenize(self, text: str) -> list[str]:
        """Return the words of a text, which MinHash has lower-cased and freed of punctuation."""
        begins = np.flatnonzero(word_starts(text, np.arange(len(text)))).tolist()
        pieces = (text[begin:end].strip() for begin, end in pairwise([*begins, len(text)]))
        return [piece for piece in pieces if piece]

    def sent_tokenize(self, text: str) -> list[str]:
        """Return the text: MinHash reads no sentences."""
        return [text]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        """Return where the text lies: MinHash reads no sentences."""
        return [(0, len(text))]


class Signatures(MinhashDedupSignature):
    """Hash all n-grams of a text, or a text of fewer words as a whole: datatrove compares none of these."""

    def get_shingles(self, text: str) -> np.ndarray:
        """Return the hashes of what two texts are compared by, (N, 1)."""
        found, hash_of = super().get_shingles(text), cast(Callable[[str], int], self._hash_func)
        if len(found):
            return found
        words = self.word_tokenizer.word_tokenize(simplify_text(text, self.config.norm_config))
        return np.array([[hash_of(" ".join(words))]], dtype=np.uint64) if words else found


class FirstOfEach(MinhashDedupCluster):
    """List all documents of each cluster but the first; datatrove keeps the one that most pairs came to."""

    def run(self, data: Any = None, _: int = 0, world_size: int = 1) -> None:
        """Join pairs of documents, each a file's number and its own in there."""
        earlier: dict[tuple[int, int], tuple[int, int]] = {}

        def first_of(document: tuple[int, int]) -> tuple[int, int]:
            path = []
            while (before := earlier.setdefault(document, document)) != document:
                path.append(document)
                document = before
            earlier.update(dict.fromkeys(path, document))
            return document

        for name in self.input_folder.list_files(glob_pattern="*.dups"):
            with self.input_folder.open(name, "rb") as pairs:
                for one, two, three, four in read_tuples_from_file(pairs, "4I"):
                    first, later = sorted((first_of((one, two)), first_of((three, four))))
                    earlier[later] = first
        with self.output_folder.get_output_file_manager(mode="wb") as files:
            for file, number in sorted(earlier):
                if first_of((file, number)) != (file, number):
                    files.write(f"{file:06d}.remove", struct.pack("<I", number))
