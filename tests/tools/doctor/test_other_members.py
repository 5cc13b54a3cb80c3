"""Members that are no Transformers: commands that are about Transformers refuse them, others load them."""

import pytest

from tercet import TercetElmoModel
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.tools.doctor.examined_model import load_examined_model

from ...small_elmo import small_config
from ...small_taggers import save_static


@pytest.fixture(scope="module")
def elmo(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("elmo")
    TercetElmoModel(small_config()).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("load", [Checkpoint.transformer, load_examined_model])
def test_only_transformers_are_read(load, elmo):
    with pytest.raises(
        ValueError, match="is a tercet_elmo, which this command does not read: name an encoder"
    ):
        load(Checkpoint.open(elmo))


def test_who_reads_any_member_gets_it(elmo):
    assert isinstance(Checkpoint.open(elmo).ours(), TercetElmoModel)


def test_models_that_read_words_are_not_examined(tmp_path):
    save_static(tmp_path)
    with pytest.raises(ValueError, match="is a tercet_word_vectors, which this command does not read"):
        load_examined_model(Checkpoint.open(str(tmp_path)))
