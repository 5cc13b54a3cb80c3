"""Checkpoints of a model in pieces: each process writes what it holds, and any layout can go on from them."""

from pathlib import Path

import pytest
from accelerate import Accelerator

from tercet.training.checkpoints.checkpoint import PIECES, checkpoints
from tercet.training.checkpoints.recovery import newest_whole

from ..saved_weights import moments_in, require_same, require_same_models, weights_in

PIECES_OF = "from tests.training.sharded_checkpoints import main; main()"
IN_PIECES = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}


def test_a_checkpoint_in_pieces_is_what_the_processes_gather_and_errors_reach_all_of_them(
    fork_server, tmp_path
):
    run = fork_server.start(PIECES_OF, str(tmp_path), processes=2, variables=IN_PIECES)
    status, said = fork_server.wait(run), run.output.read_text()
    assert status == 0, said
    older, newest = checkpoints(tmp_path)
    assert sorted(path.name for path in (newest / PIECES).iterdir()) == [
        f"shard-0000{number}-model-00001-of-00001.safetensors" for number in (1, 2)
    ]
    (newest / PIECES / "shard-00002-model-00001-of-00001.safetensors").unlink()
    with pytest.warns(
        UserWarning, match=rf"{PIECES}/shard-00002\S+ is missing; .* continues from {older.name}"
    ):
        assert newest_whole(tmp_path, Accelerator(cpu=True)) == older


@pytest.mark.slow
def test_any_layout_takes_up_the_state_that_another_one_had(fork_server, tmp_path):
    """Four processes in pieces, then two, one, two copies, three in pieces: each saves what it has read."""
    previous = ""
    for processes, in_pieces in ((4, True), (2, True), (1, False), (2, False), (3, True)):
        folder = tmp_path / f"{processes}-{in_pieces}"
        variables = IN_PIECES if in_pieces else {}
        program = "from tests.training.sharded_checkpoints import pass_on; pass_on()"
        run = fork_server.start(program, str(folder), previous, processes=processes, variables=variables)
        status, said = fork_server.wait(run), run.output.read_text()
        assert status == 0, said
        (found,) = checkpoints(folder)
        assert (found / PIECES).exists() is in_pieces
        if previous:
            require_same_models(found, Path(previous))
            require_same(weights_in(found, "ema"), weights_in(Path(previous), "ema"))
            require_same(moments_in(found), moments_in(Path(previous)))
        previous = str(found)
