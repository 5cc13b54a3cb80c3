"""A model and its Space arrive beside each other, each in one commit."""

from tercet.__main__ import main
from tercet.reports.finished_run import find_run
from tercet.tools.play.space import prepare_space
from tercet.tools.push.publication import prepare


def test_the_space_arrives_beside_its_model(folder, hub, capsys):
    assert main(["push", str(folder), "me/small", "--space"]) == 0
    model, space = capsys.readouterr().out.split()
    assert "/me/small/commit/" in model
    assert "/spaces/me/small/commit/" in space
    expected = prepare_space(prepare(folder, "me/small"), find_run(folder)).files
    arrived = hub.files("spaces/me/small")
    assert {file.path for file in expected} == arrived.keys() - {".gitattributes"}
    for file in expected:
        source = file.source if isinstance(file.source, bytes) else file.source.read_bytes()
        assert arrived[file.path] == source
    assert "config.json" in hub.files("me/small")
    assert hub.repositories["spaces/me/small"].sdk == "gradio"


def test_a_private_model_has_a_private_space(folder, hub):
    assert main(["push", str(folder), "me/small", "--space", "--private"]) == 0
    assert all(repository.private for repository in hub.repositories.values())
    assert len(hub.repositories) == 2


def test_a_dry_run_lists_both_and_sends_nothing(folder, hub, capsys):
    assert main(["push", str(folder), "me/small", "--space", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "-> me/small (main)" in printed
    assert "-> spaces/me/small (main)" in printed
    assert "  app.py" in printed
    assert hub.requests == []


def test_without_the_option_there_is_no_space(folder, hub):
    assert main(["push", str(folder), "me/small"]) == 0
    assert set(hub.repositories) == {"me/small"}
