"""A corpus in an object store, on a loopback server: prepared there, and read through a bounded cache."""

import pickle
from pathlib import Path

import pytest

pytest.importorskip("datatrove", reason="the extra `prepare` is not installed")
pytest.importorskip("moto.server", reason="moto, the server of a local object store, is not installed")
pytest.importorskip("s3fs", reason="s3fs is not installed")

import s3fs
from moto.server import ThreadedMotoServer

import tercet
from tercet.data.documents import open_documents
from tercet.data.prepared import open_source
from tercet.data.tokenizers.tokenization import tokenized_corpus

from .test_prepare import opened, require_same


@pytest.fixture
def store(monkeypatch):
    """An empty bucket on a server of this machine."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    store = s3fs.S3FileSystem()
    store.mkdir("bucket")
    yield store
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.mark.slow
def test_a_corpus_in_an_object_store_is_the_one_on_a_disk(store, described, texts, tokenizer, tmp_path):
    store.put(f"{texts}/", "bucket/texts/", recursive=True)
    whole = tokenized_corpus(open_documents(texts), tokenizer)
    recipe = described(corpus={"path": "s3://bucket/texts"}) | {"output": "s3://bucket/prepared"}
    location = tercet.prepare(recipe)
    assert location == "s3://bucket/prepared/manifest.json"
    sizes = [store.size(name) for name in store.find("bucket/prepared/shards")]
    bound, cache = 3 * max(sizes), tmp_path / "copies"
    assert sum(sizes) > 2 * bound
    corpus = opened(location, tokenizer, cache=cache, remote_cache=bound)
    for _ in range(2):
        require_same(corpus, whole)
        assert sum(file.stat().st_size for file in (cache / "remote").iterdir()) <= bound
    require_same(pickle.loads(pickle.dumps(corpus)), whole)
    folder = open_source(location, cache=cache).tokenizer_folder()
    assert (folder / "tokenizer.json").is_file()

    shard = "bucket/prepared/shards/00001"
    store.pipe_file(f"{shard}/tokens", store.cat_file(f"{shard}/tokens")[::-1])
    other = opened(location, tokenizer, cache=tmp_path / "anew", remote_cache=bound)
    with pytest.raises(ValueError, match="tokens has other contents"):
        require_same(other, whole)
    assert not [*Path(tmp_path / "anew").rglob("*.partial")]
    with pytest.raises(ValueError, match=r"and the cache holds 100: raise corpus\.remote_cache"):
        opened(location, tokenizer, cache=tmp_path / "anew", remote_cache=100)
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/nothing/manifest\.json does not exist"):
        open_source("s3://bucket/nothing/manifest.json")
    with pytest.raises(ValueError, match=r"name the manifest\.json of a prepared corpus"):
        open_source("s3://bucket/texts")
