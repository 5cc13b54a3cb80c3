"""Pushing to a Hub on this machine: what arrives, what is refused, and what a broken push leaves."""

import threading
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants

from tercet.__main__ import main
from tercet.modeling import TercetDecoderForCausalLM
from tercet.reports.finished_run import find_run
from tercet.tools.push import push as client
from tercet.tools.push.publication import PublishedFile, prepare

from .memory import TOKEN


def push(folder: Path, *options: str, repo: str = "me/small") -> int:
    """Run the command."""
    return main(["push", str(folder), repo, *options])


def said(capsys, hub) -> str:
    """Return what was printed, which never holds a token, by any stream."""
    printed = capsys.readouterr()
    assert not any(token in printed.out + printed.err for token in hub.owners)
    return printed.out + printed.err


def test_what_is_prepared_arrives_in_one_commit(folder, hub, capsys):
    assert push(folder, "--message", "First version") == 0
    assert f"{hub.address}/me/small/commit/" in said(capsys, hub)
    arrived = hub.files("me/small")
    prepared = {file.path: file.source for file in prepare(folder, "me/small").files}
    assert set(arrived) == {*prepared, ".gitattributes"}
    for name, source in prepared.items():
        assert arrived[name] == (source if isinstance(source, bytes) else source.read_bytes())
    assert sum(path.endswith("/commit/main") for _, path in hub.requests) == 1


def test_a_model_is_not_read_by_files_of_the_one_before(folder, hub):
    """Be it a chat template, or how states become a vector; what no program reads with it stays."""
    names = ["chat_template.jinja", "modules.json", "1_Pooling/config.json"]
    others = ["notes.md", "models/large/model.safetensors", "model.fp16.safetensors", "prompts/chat.jinja"]
    publication = prepare(folder, "me/small")
    earlier = [PublishedFile(name, b"{}") for name in (*names, *others)]
    client.push(replace(publication, files=[*publication.files, *earlier]))
    kept = {file.path for file in publication.files} - {*names}
    with pytest.warns(UserWarning, match="me/small: deleted .* chat_template.jinja, modules.json, 1_Pooling"):
        client.push(replace(publication, files=[each for each in publication.files if each.path in kept]))
    assert set(hub.files("me/small")) == kept | {*others, ".gitattributes"}


def test_a_model_beside_a_run_has_no_scores_of_the_run(folder, tmp_path):
    """Such as one that was merged or trained on: they are those of `model`."""
    (tmp_path / "evaluation.json").write_text('{"step": 7}')
    assert find_run(folder).evaluation == {}
    folder.rename(tmp_path / "model")
    assert find_run(tmp_path).evaluation == find_run(tmp_path / "model").evaluation == {"step": 7}


def test_a_repeated_push_sends_nothing_large(folder, hub):
    push(folder)
    before = hub.uploads()
    assert push(folder) == 0
    assert hub.uploads() == before > 1
    assert len(hub.repositories["me/small"].branches["main"]) == 2  # its creation, and one commit


def test_an_interrupted_push_goes_on_where_it_broke_off(folder, hub, capsys, impatience):
    shards = len(list(folder.glob("*.safetensors")))
    hub.room = threading.Semaphore(1)
    assert push(folder) == 1
    assert "push again, and what has arrived is not sent again" in said(capsys, hub)
    assert set(hub.files("me/small")) == {".gitattributes"}
    assert len(hub.objects) == 1
    hub.room.release(shards)
    before = hub.uploads()
    assert push(folder) == 0
    assert hub.uploads() - before == shards - 1
    assert {path.name for path in folder.glob("*.safetensors")} <= set(hub.files("me/small"))


def test_large_files_come_in_parts_if_the_hub_says_so(folder, hub):
    hub.part_size = 10_000
    assert push(folder) == 0
    assert any(path.endswith("/2") for method, path in hub.requests if method == "PUT")
    for shard in folder.glob("*.safetensors"):
        assert hub.files("me/small")[shard.name] == shard.read_bytes()


def test_weights_of_an_earlier_push_do_not_stay(folder, hub, tmp_path):
    push(folder)
    TercetDecoderForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "whole")
    push(tmp_path / "whole")
    weights = {name for name in hub.files("me/small") if "safetensors" in name}
    assert weights == {"model.safetensors"}


def test_a_branch_is_made_and_main_stays(folder, hub):
    assert push(folder, "--revision", "trial") == 0
    assert "config.json" in hub.files("me/small", "trial")
    assert set(hub.files("me/small")) == {".gitattributes"}


def test_private_is_private_and_never_public_by_chance(folder, hub, capsys):
    assert push(folder, "--private") == 0
    assert hub.repositories["me/small"].private
    push(folder, repo="me/known")
    commits = len(hub.repositories["me/known"].branches["main"])
    capsys.readouterr()
    assert push(folder, "--private", repo="me/known") == 2
    assert "me/known exists and is public" in said(capsys, hub)
    assert len(hub.repositories["me/known"].branches["main"]) == commits


def test_a_dry_run_sends_nothing_and_says_what(folder, hub, capsys):
    assert push(folder, "--dry-run") == 0
    printed = said(capsys, hub)
    assert "config.json" in printed
    assert "the card lacks license: write" in printed
    assert hub.requests == []


@pytest.mark.parametrize(
    ("token", "endpoint", "repo", "code", "message"),
    [
        ("hf_wrong", None, "me/small", 2, "tercet push: the Hub does not accept the token: create one"),
        ("", None, "me/small", 2, "hf auth login"),
        (TOKEN, None, "somebody/small", 2, "tercet push: the token has no write access to somebody/small"),
        (TOKEN, "http://127.0.0.1:9", "me/small", 1, "could not be reached"),
    ],
)
def test_what_the_hub_does_not_take_is_one_line_and_nothing_large_is_sent(
    token, endpoint, repo, code, message, folder, hub, monkeypatch, capsys
):
    monkeypatch.setenv("HF_TOKEN", token)
    if endpoint:
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    assert push(folder, repo=repo) == code
    printed = said(capsys, hub)
    assert message in printed.splitlines()[-1]
    assert "hf_wrong" not in printed
    assert hub.uploads() == 0
    assert token or hub.requests == []


@pytest.mark.parametrize("repo", ["small", "me/sm all", "a/b/c", "me/--x", "../x"])
def test_what_is_no_repository_is_refused_before_anything_is_sent(repo, folder, hub, capsys):
    assert push(folder, repo=repo) == 2
    printed = said(capsys, hub)
    assert "write owner/name" in printed
    assert printed.count("\n") == 1
    assert hub.requests == []


def test_metadata_that_the_hub_refuses_is_one_line(folder, hub, capsys):
    (folder / "README.md").write_text("---\nlicense: [1, 2]\n---\n")
    assert push(folder) == 2
    assert "license must be a string" in said(capsys, hub)
    assert hub.uploads() == 0


@pytest.mark.parametrize("token", ["hf_secretOfTheOwner", "hf_brok\x01en"])
def test_an_error_that_quotes_the_token_is_told_without_it(token, folder, hub, monkeypatch):
    """A malformed header is quoted by the client below, and a traceback would show it."""

    def quote(*arguments, **options):
        raise RuntimeError(f"Illegal header value {f'Bearer {token}'.encode()!r}")

    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setattr(client.HfApi, "create_repo", quote)
    with pytest.raises(ConnectionError) as raised:
        client.push(prepare(folder, "me/small"))
    shown = "".join(traceback.format_exception(raised.value))
    assert not any(spelling in shown for spelling in (token, repr(token)[1:-1]))
    assert "Illegal header value" in str(raised.value)
