"""A tokenizer that does not fit its model is found out, each misfit by its examination."""

import pytest

from tercet.doctor.diagnosis import diagnose

from .conftest import POSITIONS, WORDS


@pytest.mark.parametrize(("rows", "verdict"), [(60, "failed"), (129, "warning")])
def test_a_table_of_another_size_is_found(rows, verdict, folder_of, complaints):
    assert complaints(folder_of("encoder", vocab_size=rows)) == {"vocabulary": verdict}


@pytest.mark.parametrize("rows", [61, 64, 128])
def test_a_table_padded_for_speed_is_well(rows, folder_of, complaints):
    assert not complaints(folder_of("gpt2", vocab_size=rows))


@pytest.mark.parametrize(
    ("kind", "missing", "verdict"),
    [("bert", "mask", "failed"), ("decoder", "pad", "warning"), ("bert_classifier", "pad", "warning")],
)
def test_a_missing_token_is_found(kind, missing, verdict, folder_of, complaints):
    folder = folder_of(kind, tokenizer={f"{missing}_token": None})
    assert complaints(folder) == {"needed tokens": verdict}


@pytest.mark.parametrize("kind", ["gpt2", "bert_classifier"])
def test_only_a_model_that_predicts_hidden_tokens_needs_a_mask(kind, folder_of, complaints):
    assert not complaints(folder_of(kind, tokenizer={"mask_token": None}))


def test_padding_with_the_end_of_texts_is_found(folder_of, complaints):
    folder = folder_of("llama", tokenizer={"pad_token": "</s>"}, pad_token_id=2)
    assert complaints(folder) == {"end and padding": "warning"}


def test_special_ids_that_disagree_are_found(folder_of, edit_json, complaints):
    folder = folder_of("decoder")
    edit_json(folder / "generation_config.json", eos_token_id=7)
    assert complaints(folder) == {"special ids": "failed"}
    finding = diagnose(str(folder)).findings["special ids"]
    assert finding.measured == "eos: config 2, generation config 7, tokenizer 2"


def test_one_of_several_ends_is_enough(folder_of, edit_json, complaints):
    folder = folder_of("decoder")
    for file in ("config.json", "generation_config.json"):
        edit_json(folder / file, eos_token_id=[2, 7])
    assert not complaints(folder)


def test_special_ids_beyond_the_table_are_found(folder_of, edit_json, complaints):
    folder = folder_of("bart")
    for file in ("config.json", "generation_config.json"):
        edit_json(folder / file, decoder_start_token_id=61)
    assert complaints(folder) == {"special ids": "failed"}
    assert (
        "decoder_start outside the embedding matrix" in diagnose(str(folder)).findings["special ids"].measured
    )


@pytest.mark.parametrize(("length", "verdict"), [(33, "failed"), (None, "warning")])
def test_texts_longer_than_the_model_are_found(length, verdict, folder_of, complaints):
    assert complaints(folder_of("gpt2", tokenizer={"model_max_length": length})) == {"longest input": verdict}


@pytest.mark.parametrize(("pad", "length"), [("<pad>", POSITIONS), ("<unk>", POSITIONS - 4)])
def test_a_model_whose_positions_begin_behind_the_pad_reads_fewer_tokens(pad, length, folder_of, complaints):
    pad_id = WORDS.index(pad)
    for longest, expected in ((length, {}), (length + 1, {"longest input": "failed"})):
        tokenizer = {"pad_token": pad, "model_max_length": longest}
        folder = folder_of("roberta", tokenizer=tokenizer, pad_token_id=pad_id)
        assert complaints(folder) == expected
    assert diagnose(str(folder)).findings["longest input"].remedy == f"tokenizer.model_max_length = {length}"
