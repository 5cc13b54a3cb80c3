"""One thread at a time silences transformers, and loads: what both switch is the process's."""

import sys
from threading import Thread

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel
from transformers.utils import logging

from tercet.modeling.saved.weights import load_whole


@pytest.fixture
def impatience():
    """Let threads take turns often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    yield
    sys.setswitchinterval(interval)


def test_models_are_loaded_in_several_threads_and_the_process_stays_as_it_was(tmp_path, impatience):
    sizes = {"vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 2}
    saved = GPT2LMHeadModel(GPT2Config(**sizes))
    saved.save_pretrained(tmp_path)
    tie, verbosity, loaded = PreTrainedModel.tie_weights, logging.get_verbosity(), []

    def load():
        loaded.extend(load_whole(GPT2LMHeadModel, tmp_path)[0] for _ in range(4))

    threads = [Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 12
    for model in loaded:
        assert model.lm_head.weight is model.transformer.wte.weight
        assert torch.equal(model.lm_head.weight, saved.lm_head.weight)
    assert PreTrainedModel.tie_weights is tie
    assert logging.get_verbosity() == verbosity
    assert logging.is_progress_bar_enabled()
