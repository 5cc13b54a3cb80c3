"""`tercet embed`: the vectors that sentence-transformers gives, for each row of a file, in their order."""

import gzip
import io
import json
import warnings

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertModel

from tercet import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetEncoderForMaskedLM,
)
from tercet.__main__ import main
from tercet.modeling import TercetEncoderForSentenceEmbedding
from tercet.tools.embed import embedding, vector_files
from tercet.tools.embed.embedding import load_embedder

from ...stock_models import SIZES

TEXTS = ["the cat", "", "a b. Is 12 of them it?", "the " * 40, "a", "the cat"]
FIELDS = SIZES | {"vocab_size": 61, "max_position_embeddings": 64, "initializer_range": 0.3}


@pytest.fixture
def framing(tokenizer):
    """Let the tokenizer frame texts, as those of encoders do."""
    from tokenizers.processors import TemplateProcessing

    first, last = (tokenizer.convert_ids_to_tokens(idx) for idx in (5, 6))
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, 5), (last, 6)]
    )
    return tokenizer


@pytest.fixture
def published(framing, tmp_path):
    """Write a stock BERT with what sentence-transformers reads."""

    def publish(pooling="mean", modules=("Transformer", "Pooling", "Normalize"), **settings):
        folder = tmp_path / "published"
        torch.manual_seed(0)
        BertModel(BertConfig(**FIELDS)).save_pretrained(folder)
        framing.save_pretrained(folder)
        paths = {name: f"{idx}_{name}" if idx else "" for idx, name in enumerate(modules)}
        files = {
            "modules.json": [
                {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{name}"}
                for idx, (name, path) in enumerate(paths.items())
            ],
            "1_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode": pooling},
            "config_sentence_transformers.json": settings,
            "sentence_bert_config.json": {"max_seq_length": 24, "do_lower_case": False},
        }
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(json.dumps(content))
        for path in filter(None, paths.values()):
            (folder / path).mkdir(exist_ok=True)
        return folder

    return publish


def library_vectors(folder, texts, **options):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    return library.SentenceTransformer(str(folder), device="cpu", trust_remote_code=True).encode(
        texts, **options
    )


@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
@pytest.mark.parametrize("modules", [("Transformer", "Pooling", "Normalize"), ("Transformer", "Pooling")])
def test_vectors_are_those_of_sentence_transformers(pooling, modules, published, monkeypatch):
    folder = published(pooling, modules)
    monkeypatch.setattr(embedding, "TOKENS_AT_ONCE", 16)
    found = load_embedder(str(folder)).embed(TEXTS)
    np.testing.assert_allclose(found, library_vectors(folder, TEXTS), atol=1e-5)


def test_texts_that_lose_their_end_are_told_once(published):
    embedder = load_embedder(str(published()))
    with warnings.catch_warnings(action="error"):
        embedder.embed(TEXTS[:1])
    with pytest.warns(UserWarning, match=r"more than 24 tokens lose their end: 1 of the 2 .* as number 2"):
        embedder.embed([TEXTS[0], "a cat " * 30])
    with warnings.catch_warnings(action="error"):
        embedder.embed(["a cat " * 30])


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_prompt_that_is_empty_is_not_the_default_one(pooling, published):
    prompts = {"query": "a cat: ", "document": ""}
    folder = published(pooling, prompts=prompts, default_prompt_name="query")
    plain, default = (load_embedder(str(folder), prompt=name).embed(TEXTS) for name in ("document", None))
    np.testing.assert_allclose(plain, library_vectors(folder, TEXTS, prompt_name="document"), atol=1e-5)
    np.testing.assert_allclose(default, library_vectors(folder, TEXTS), atol=1e-5)
    assert np.abs(plain - default).max() > 1e-2


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_weights_in_half_precision_are_computed_in_single(pooling, published):
    folder = published(pooling)
    model = BertModel.from_pretrained(folder)
    model.bfloat16().save_pretrained(folder)
    half = load_embedder(str(folder)).embed(TEXTS)
    model.float().save_pretrained(folder)
    np.testing.assert_allclose(half, load_embedder(str(folder)).embed(TEXTS), atol=1e-6)


def test_prompts_are_those_of_the_folder(published, capsys):
    prompts = {"query": "a cat: ", "title": "it "}
    folder = published(prompts=prompts, default_prompt_name="title")
    for name in (None, "query"):
        found = load_embedder(str(folder), prompt=name).embed(TEXTS)
        np.testing.assert_allclose(found, library_vectors(folder, TEXTS, prompt_name=name), atol=1e-5)
    with pytest.raises(ValueError, match=r"--prompt is 'document'.*are: query, title"):
        load_embedder(str(folder), prompt="document")


@pytest.mark.parametrize(
    ("config", "model"),
    [
        (TercetEncoderConfig, TercetEncoderForSentenceEmbedding),
        (TercetEncoderConfig, TercetEncoderForMaskedLM),
        (TercetDecoderConfig, TercetDecoderForCausalLM),
    ],
)
def test_models_of_ours_have_the_vectors_that_sentence_transformers_gives(
    config, model, framing, tmp_path, capsys
):
    torch.manual_seed(0)
    model(config(**FIELDS)).save_pretrained(tmp_path)
    framing.save_pretrained(tmp_path)
    if model is TercetEncoderForSentenceEmbedding:
        from tercet.modeling.saved.sentence_vectors import SentenceVectors, sentence_files, write_files

        write_files(sentence_files(SentenceVectors("mean"), 32), tmp_path)
    found = load_embedder(str(tmp_path)).embed(TEXTS)
    assert ("has no modules.json" in capsys.readouterr().err) == (
        model is not TercetEncoderForSentenceEmbedding
    )
    np.testing.assert_allclose(found, library_vectors(tmp_path, TEXTS), atol=1e-5)


def test_what_cannot_be_read_as_ours_is_left_to_the_library(published, capsys, monkeypatch):
    folder = published("max")
    found = load_embedder(str(folder)).embed(TEXTS)
    assert "makes its vectors by the pooling max" in capsys.readouterr().err
    np.testing.assert_allclose(found, library_vectors(folder, TEXTS), atol=1e-6)
    monkeypatch.setattr(embedding, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install sentence-transformers"):
        load_embedder(str(folder))


def test_damage_is_no_reason_to_ask_the_library(published):
    folder = published()
    (folder / "modules.json").write_text("{")
    with pytest.raises(ValueError, match=r"modules.json is damaged"):
        load_embedder(str(folder))


def test_a_cross_encoder_makes_no_vectors(published):
    folder = published(modules=("Transformer",), model_type="CrossEncoder")
    with pytest.raises(ValueError, match="is a cross-encoder"):
        load_embedder(str(folder))


def write_texts(folder, kind):
    """Write the texts as a file of a kind."""
    path = folder / f"texts{kind}"
    if kind == ".txt.gz":
        path.write_bytes(gzip.compress("".join(f"{text}\n" for text in TEXTS).encode()))
    elif kind == ".csv":
        path.write_text("id,text\n" + "".join(f'{row},"{text}"\n' for row, text in enumerate(TEXTS)))
    else:
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


@pytest.mark.parametrize("kind", [".txt.gz", ".csv", ".jsonl"])
def test_each_row_has_a_vector_in_its_place(kind, published, tmp_path, monkeypatch, capsys):
    folder, source = published(), write_texts(tmp_path, kind)
    monkeypatch.setattr(vector_files, "TEXTS_AT_ONCE", 4)
    output = tmp_path / "vectors.npy"
    assert main(["embed", str(folder), str(source), "--output", str(output)]) == 0
    expected = load_embedder(str(folder)).embed(TEXTS)
    np.testing.assert_allclose(np.load(output, mmap_mode="r"), expected, atol=1e-6)
    assert np.load(output).dtype == np.float32
    assert "6 texts -> vectors of 32 numbers" in capsys.readouterr().err


def test_a_table_has_the_texts_and_an_index_finds_them(published, tmp_path):
    folder, source, output = published(), write_texts(tmp_path, ".jsonl"), tmp_path / "vectors.parquet"
    command = ["embed", str(folder), str(source), "--output", str(output)]
    assert main(command) == 0
    expected = load_embedder(str(folder)).embed(TEXTS)
    rows = Dataset.from_parquet(str(output), cache_dir=str(tmp_path / "cache"))
    assert rows["text"][:] == TEXTS
    np.testing.assert_allclose(np.array(rows["embedding"][:]), expected, atol=1e-6)
    pytest.importorskip("faiss", reason="faiss is not installed")
    assert main([*command, "--index", "--overwrite"]) == 0
    rows.load_faiss_index("embedding", output.with_suffix(".faiss"))
    for row in (1, 2, 3, 4):
        cosines, found = rows.search("embedding", expected[row], k=2)
        assert found[0] == row
        np.testing.assert_allclose(cosines, np.sort(expected @ expected[row])[-1:-3:-1], atol=1e-5)


def test_an_index_without_faiss_is_refused_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(vector_files, "find_spec", lambda name: None)
    assert main(["embed", "nowhere", str(write_texts(tmp_path, ".jsonl")), "--index"]) == 2
    assert "pip install 'tercet[index]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--output", "vectors.csv"], "end its name in .npy or .parquet"),
        (["--column", "txt"], ") in --column"),
        (["--output", "nowhere/v.npy"], "does not exist"),
        (["--prompt", "query"], "are: none"),
    ],
)
def test_mistakes_are_told_and_leave_nothing(options, complaint, published, tmp_path, monkeypatch, capsys):
    folder, source = published(), write_texts(tmp_path, ".jsonl")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["embed", str(folder), str(source), *options]) == 2
    assert complaint in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("source", "content"), [("t.txt", ""), ("t.csv", "id,text\n"), ("-", "")])
def test_a_file_without_texts_is_refused(source, content, published, tmp_path, monkeypatch, capsys):
    folder = published()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(content))
    if source != "-":
        (tmp_path / source).write_text(content)
    assert main(["embed", str(folder), source]) == 2
    name = "standard input" if source == "-" else source
    assert f"{name}: there is no text: give at least one" in capsys.readouterr().err
    assert not (tmp_path / "embeddings.npy").exists()


def test_a_missing_text_is_named_and_what_was_there_stays(published, tmp_path, capsys):
    folder, source, output = published(), tmp_path / "texts.jsonl", tmp_path / "vectors.npy"
    source.write_text('{"text": "a"}\n{"text": null}\n')
    output.write_bytes(b"earlier")
    assert main(["embed", str(folder), str(source), "--output", str(output)]) == 2
    assert "vectors.npy exists" in capsys.readouterr().err
    assert main(["embed", str(folder), str(source), "--output", str(output), "--overwrite"]) == 2
    assert "texts.jsonl: row 2 has no text in column 'text' (None)" in capsys.readouterr().err
    assert output.read_bytes() == b"earlier"


SETTINGS_OF_LOADING = {
    "model_args": {"use_safetensors": False, "weights_only": False},
    "model_kwargs": {"attn_implementation": "them/kernel"},
    "config_args": {"_configuration_file": "../config.json"},
    "tokenizer_name_or_path": "/elsewhere",
    "cache_dir": "/elsewhere",
}


@pytest.mark.parametrize("key", SETTINGS_OF_LOADING)
def test_a_folder_does_not_choose_how_it_is_loaded(key, published):
    """Its settings become arguments of `from_pretrained`, which fetches kernels and reads any file."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder = published("max")
    settings = folder / "sentence_bert_config.json"
    settings.write_text(json.dumps({"max_seq_length": 16, "model_args": {"torch_dtype": "float32"}}))
    assert load_embedder(str(folder)).embed(["the cat"]).shape == (1, 32)
    settings.write_text(json.dumps({"max_seq_length": 16, key: SETTINGS_OF_LOADING[key]}))
    with pytest.raises(
        ValueError, match=r"sentence_bert_config\.json chooses how sentence-transformers loads"
    ):
        load_embedder(str(folder))
