"""A prepared corpus equals the corpus of the same documents, however it came about."""

import json
import random
import shutil
import warnings
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

pytest.importorskip("datatrove", reason="the extra `prepare` is not installed")

import tercet
from tercet.data.corpus import ARRAYS, TokenizedCorpus
from tercet.data.documents import open_documents
from tercet.data.held_out_documents import warn_of_overlap
from tercet.data.prepared import Manifest, open_source
from tercet.data.tokenizers.tokenization import tokenize, tokenized_corpus
from tercet.data.tokenizers.tokenizer import load_tokenizer

from .conftest import DOCUMENTS


def opened(manifest: str, tokenizer: Any, **options: Any) -> TokenizedCorpus:
    """Open a prepared corpus as a run does."""
    return tokenized_corpus(open_source(manifest, **options), tokenizer)


def require_same(one: TokenizedCorpus, other: TokenizedCorpus) -> None:
    """Compare all arrays."""
    for name in ARRAYS:
        np.testing.assert_array_equal(np.asarray(getattr(one, name)), np.asarray(getattr(other, name)), name)
        assert getattr(one, name).dtype == getattr(other, name).dtype


def documents_of(corpus: TokenizedCorpus) -> list[list[int]]:
    """List the tokens of all documents."""
    return [corpus.document(number).tolist() for number in range(corpus.num_documents)]


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of a prepared corpus that runs read."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    names = {str(file.relative_to(folder)): file for file in files}
    return {
        name: file.read_bytes()
        for name, file in names.items()
        if not name.startswith("work/") and name != "recipe.yaml"
    }


def manifest_in(location: str) -> Manifest:
    """Read a manifest."""
    return Manifest.read(Path(location).read_text(), location)


def test_a_prepared_corpus_is_what_the_files_are_tokenized_to(described, texts, tokenizer):
    location = tercet.prepare(described())
    whole = tokenized_corpus(open_documents(texts), tokenizer)
    require_same(opened(location, tokenizer), whole)
    require_same(opened(str(Path(location).parent), tokenizer), whole)
    manifest = manifest_in(location)
    assert len(manifest.shards) > 3  # a.txt is cut
    assert manifest.counts.documents == len(DOCUMENTS) == manifest.tally.records
    assert manifest.counts.words == int(whole.word_starts.sum())
    assert manifest.counts.bytes == sum(len(text.encode()) for text in DOCUMENTS)


def test_shards_that_are_there_are_not_done_again(described, tokenizer):
    location = tercet.prepare(described())
    folder = Path(location).parent
    before = contents(folder)
    times = {file: file.stat().st_mtime_ns for file in folder.glob("shards/*/tokens")}
    assert tercet.prepare(described(workers=2)) == location  # nothing is left to do
    shutil.rmtree(folder / "shards" / "00001")
    (folder / "manifest.json").unlink()
    tercet.prepare(described())
    assert contents(folder) == before
    changed = [file for file, time in times.items() if file.stat().st_mtime_ns != time]
    assert changed == [folder / "shards" / "00001" / "tokens"]


@pytest.mark.slow
def test_the_same_text_gives_the_same_bytes_whatever_the_number_of_workers(described, tmp_path):
    for workers in (1, 2, 4):
        tercet.prepare(described(f"by-{workers}", workers=workers))
    first, *others = (contents(tmp_path / f"by-{workers}") for workers in (1, 2, 4))
    assert others == [first, first]


def test_a_bad_record_is_named_by_its_line_and_costs_no_other_shard(described, tmp_path, tokenizer):
    lines = [json.dumps({"text": text}) for text in DOCUMENTS]
    lines[200] = '{"text": '
    file = tmp_path / "broken.jsonl"
    file.write_text("\n".join(lines))
    corpus = {"path": str(file)}
    with pytest.raises(ValueError, match=r"broken\.jsonl, line 201: not valid JSON"):
        tercet.prepare(described(corpus=corpus))
    assert (tmp_path / "prepared" / "shards" / "00000" / "shard.json").exists()
    assert not (tmp_path / "prepared" / "manifest.json").exists()
    with pytest.raises(ValueError, match="holds a corpus that is not finished"):
        open_source(str(tmp_path / "prepared"))
    with pytest.warns(UserWarning, match="skipped 1 of 240 records"):
        location = tercet.prepare(described("skipping", corpus=corpus | {"skip_bad_records": True}))
    require_same(opened(location, tokenizer), tokenize(DOCUMENTS[:200] + DOCUMENTS[201:], tokenizer))


def test_text_that_the_tokenizer_drops_is_told_of_here_and_where_the_corpus_is_read(described, tmp_path):
    backend = Tokenizer(BPE({letter: number for number, letter in enumerate("</s>abcdefgh")}, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    tokenizer.save_pretrained(tmp_path / "letters")
    (tmp_path / "text.txt").write_text("abcz abcé")
    told = r"prepared.*: the tokenizer drops 30.00% of the text \(3 of 10 bytes\)"
    with pytest.warns(UserWarning, match=told):
        location = tercet.prepare(
            described(corpus={"path": str(tmp_path / "text.txt")}, tokenizer=str(tmp_path / "letters"))
        )
    with pytest.warns(UserWarning, match=told):
        opened(location, load_tokenizer(str(tmp_path / "letters")))


def test_a_tokenizer_with_named_chat_templates_is_kept_whole_here_and_elsewhere(
    described, tokenizer_folder, tmp_path
):
    tokenizer = load_tokenizer(str(tokenizer_folder))
    tokenizer.chat_template = {"default": "{{ messages }}", "tools": "{{ tools }}"}
    tokenizer.save_pretrained(tmp_path / "chats")
    (tmp_path / "text.txt").write_text(DOCUMENTS[0])
    tercet.prepare(described(corpus={"path": str(tmp_path / "text.txt")}, tokenizer=str(tmp_path / "chats")))
    for location in (str(tmp_path / "prepared"), f"file://{tmp_path}/prepared/manifest.json"):
        folder = open_source(location).tokenizer_folder()
        assert load_tokenizer(str(folder)).chat_template == tokenizer.chat_template
        facts = json.loads((folder / "tokenizer_config.json").read_text())
        assert facts["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_files_that_a_corpus_was_prepared_from_are_no_held_out_text(described, texts, tmp_path):
    prepared, other = open_source(tercet.prepare(described())), tmp_path / "other.txt"
    other.write_text("Held-out text.")
    held_out = open_documents([texts / "b.jsonl", other])
    for learned, measured, told in (
        (prepared, held_out, r"1 of 2 files of corpus.validation .* \(.*b.jsonl\)"),
        (held_out, prepared, r"1 of 3 files .* \(b.jsonl\)"),
        (prepared, prepared, r"3 of 3 files .* \(a.txt and 2 more\)"),
    ):
        with pytest.warns(UserWarning, match=told):
            warn_of_overlap(learned, measured, tmp_path / "cache")
    with warnings.catch_warnings(action="error"):
        warn_of_overlap(prepared, open_documents(other), tmp_path / "cache")


def test_copies_are_told_of(described, texts, tmp_path):
    copy = shutil.copy(texts / "a.txt", tmp_path / "copy.txt")
    with pytest.warns(UserWarning, match="^corpus.path: a.txt and copy.txt have the same contents"):
        tercet.prepare(described(corpus={"path": [str(texts / "a.txt"), str(copy)]}))


def test_filters_of_datatrove_are_named_by_their_classes(described, tokenizer):
    filters = [{"name": "RegexFilter", "arguments": {"regex_exp": "[Bb]ale"}}]
    location = tercet.prepare(described(filters=filters))
    kept = [text for text in DOCUMENTS if "bale" not in text.lower()]
    assert 0 < len(kept) < len(DOCUMENTS)
    require_same(opened(location, tokenizer), tokenize(kept, tokenizer))


def test_near_duplicates_are_left_out_and_the_first_stays(described, tmp_path, tokenizer):
    long = [" ".join(DOCUMENTS[start : start + 5]) for start in range(0, 200, 5)]
    copies = [text.replace(".", "!") + " Again." for text in long[:10]]
    file = tmp_path / "copied.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in long + copies))
    recipe = described(corpus={"path": str(file), "shard_bytes": 4000}, deduplicate={"n_grams": 3})
    require_same(opened(tercet.prepare(recipe), tokenizer), tokenize(long, tokenizer))


def test_the_first_of_a_chain_stays_whichever_has_more_like_it(described, tmp_path, tokenizer):
    """Each is like its neighbours, and the last is hardly like the first (huggingface/datatrove#249)."""
    draw, chains = random.Random(0), []
    for _ in range(8):
        words = [draw.choice(" ".join(DOCUMENTS).split()) for _ in range(140)]
        chains.append([" ".join(words[start : start + 100]) for start in (0, 8, 16, 24, 32)])
    short = ["too few", "too few!", "14 apples", "15 apples"]
    figures = [f"On 3 May {year} the shop sold {year} apples to {year} people" for year in range(1990, 2000)]
    file = tmp_path / "chains.jsonl"
    texts = [*chain.from_iterable(chains), *short, *figures]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    kept = [*(first for first, *_ in chains), "too few", *short[2:], *figures]
    location = tercet.prepare(described(corpus={"path": str(file)}, deduplicate={}))
    require_same(opened(location, tokenizer), tokenize(kept, tokenizer))


def test_a_filter_that_draws_leaves_the_same_documents_to_deduplicate(described, tmp_path, tokenizer):
    long = [" ".join(DOCUMENTS[start : start + 5]) for start in range(0, 200, 5)]
    file = tmp_path / "twice.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in long + long))
    filters = [{"name": "SamplerFilter", "arguments": {"rate": 0.7, "seed": 0}}]
    recipe = described(corpus={"path": str(file)}, filters=filters)
    drawn = opened(tercet.prepare(recipe), tokenizer)
    kept = opened(tercet.prepare(recipe | {"output": str(tmp_path / "once"), "deduplicate": {}}), tokenizer)
    one, other = (Counter(map(tuple, documents_of(corpus))) for corpus in (drawn, kept))
    assert max(one.values()) == 2
    assert other == dict.fromkeys(one, 1)


def test_what_is_left_out_is_counted(described, tmp_path, capsys):
    """By filters and deduplication, whoever reads; what is empty is left out, too."""
    long = [" ".join(DOCUMENTS[start : start + 5]) for start in range(0, 200, 5)]
    file = tmp_path / "rows" / "twice.jsonl"
    file.parent.mkdir()
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*long, *long[:7], "lorem ipsum"]))
    reader = {"name": "JsonlReader", "arguments": {"data_folder": str(file.parent)}}
    chosen: Any = {
        "filters": [{"name": "RegexFilter", "arguments": {"regex_exp": "lorem"}}],
        "deduplicate": {},
    }
    for name, corpus in (("files", {"path": str(file)}), ("reader", {"path": None, "reader": reader})):
        location = tercet.prepare(described(name, corpus=corpus, **chosen))
        assert manifest_in(location).tally.records == 48
        prepared, left_out = capsys.readouterr().err.splitlines()
        assert prepared.startswith("prepared 40 documents, ")
        assert left_out == "left out 8 of 48 documents: by RegexFilter, deduplication, or without text"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*DOCUMENTS, " "]))
    tercet.prepare(described("empty", corpus={"path": str(file)}))
    assert capsys.readouterr().err.endswith("left out 1 of 241 documents: without text\n")


SHUFFLED = {"name": "JsonlReader", "arguments": {"data_folder": ".", "shuffle_files": True}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"filters": [{"name": "GopherFilter"}]},
         "datatrove has no 'GopherFilter': use one of C4BadWordsFilter"),
        ({"filters": [{"name": "RegexFilter", "arguments": {"pattern": "x"}}]},
         "RegexFilter does not take: use regex_exp"),
        ({"filters": [{"name": "SamplerFilter", "arguments": {"rate": 0.5}}]},
         "filters: SamplerFilter may draw at random, and .*: add seed: 0 to its arguments"),
        ({"corpus": {"path": None, "reader": SHUFFLED}},
         r"corpus\.reader: JsonlReader shuffles without a seed, .*leave shuffle_files out"),
        ({"executor": {"kind": "slurm"}}, r"executor\.arguments of SlurmExecutor.*'time'"),
    ],
)  # fmt: skip
def test_blocks_that_cannot_be_built_are_refused(keys, message, described, tmp_path):
    with pytest.raises(ValueError, match=message):
        tercet.prepare(described(**keys))
    assert not (tmp_path / "prepared").exists()


def test_what_does_not_fit_is_refused(described, tmp_path, tokenizer):
    prepare = partial(pytest.raises, ValueError)
    location = tercet.prepare(described())
    with prepare(match="prepared with another tasks and options.*--overwrite"):
        tercet.prepare(described(corpus={"shard_bytes": 4000}))
    tercet.prepare(described(corpus={"shard_bytes": 4000}), overwrite=True)
    tokenizer = type(tokenizer).from_pretrained(tokenizer.name_or_path)
    tokenizer.add_tokens(["ity"])
    with prepare(match="was prepared by another tokenizer"):
        opened(location, tokenizer)
    (Path(location).parent / "shards" / "00001" / "tokens").write_bytes(b"12")
    with prepare(match="00001/tokens is not what .*manifest.json says"):
        opened(
            location,
            tercet.data.tokenizers.tokenizer.load_tokenizer(str(Path(location).parent / "tokenizer")),
        )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary.txt").write_text("Dear diary")
    with prepare(match="holds diary.txt, of no unfinished corpus"):
        tercet.prepare(described("other"))
    assert (tmp_path / "other" / "diary.txt").exists()


def test_text_without_documents_is_refused(described):
    with pytest.raises(ValueError, match="has no text"):
        tercet.prepare(described(filters=[{"name": "RegexFilter", "arguments": {"regex_exp": "."}}]))
