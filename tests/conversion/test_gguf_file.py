"""`tercet export --gguf`: a file that transformers reads back with equal logits."""

import json
from copy import deepcopy

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from tercet import TercetDecoderConfig, TercetDecoderForCausalLM
from tercet.__main__ import main
from tercet.conversion import gguf_file
from tercet.text.new_terms import add_terms

gguf = pytest.importorskip("gguf", reason="gguf is not installed")

TEXTS = ["the cat sat on the mat.", "It isn't 12 of them; is it?", "where are the cats, and the mats?"]
SIZES = {
    "vocab_size": 310,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
GPT2 = {
    "position_embedding_type": "learned",
    "norm_type": "layer_norm",
    "norm_bias": True,
    "feed_forward_type": "plain",
    "hidden_act": "gelu_new",
    "attention_bias": True,
    "mlp_bias": True,
    "norm_eps": 1e-5,
}
KINDS = {
    "llama": {"num_key_value_heads": 2},
    "llama, untied": {"tie_word_embeddings": False, "rope_theta": 500.0},
    "qwen2": {"attention_bias": True, "attention_out_bias": False},
    "qwen3": {"use_qk_norm": True, "head_dim": 12},
    "gpt2": GPT2,
}


@pytest.fixture
def words() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


@pytest.fixture
def saved(words, tmp_path):
    def save(fields):
        torch.manual_seed(0)
        config = TercetDecoderConfig(**SIZES | fields)
        TercetDecoderForCausalLM(config).save_pretrained(tmp_path / "model")
        words.save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    return save


@pytest.mark.parametrize(("kind", "fields"), KINDS.items(), ids=KINDS)
def test_a_decoder_is_read_back_with_equal_logits(kind, fields, saved, tmp_path, capsys) -> None:
    source, target = saved(fields), tmp_path / "file"
    assert main(["export", str(source), str(target), "--gguf"]) == 0
    printed = capsys.readouterr()
    assert "read back by transformers: logits differ by" in printed.out
    assert "Converting" not in printed.err  # neither a bar nor a warning
    assert f"next: llama-cli -m {target / 'model.gguf'}" in printed.err
    reader = gguf.GGUFReader(target / "model.gguf")
    assert reader.fields["general.architecture"].contents() == kind.partition(",")[0]
    assert reader.fields["tokenizer.ggml.pre"].contents() == "gpt-2"
    assert json.loads((target / "certificate.json").read_text())["holds"]
    if not kind.startswith(("llama", "qwen2")):  # whose configuration transformers does not read as a whole
        return
    read = AutoModelForCausalLM.from_pretrained(target, gguf_file="model.gguf").eval()
    ids = torch.randint(3, 300, (2, 20))
    expected = TercetDecoderForCausalLM.from_pretrained(source).eval()(ids).logits
    torch.testing.assert_close(read(ids).logits, expected, atol=1e-4, rtol=0)


def test_the_tokens_are_those_of_the_tokenizer(saved, words, tmp_path) -> None:
    source, target = saved(KINDS["llama"]), tmp_path / "file"
    GenerationConfig(eos_token_id=[2, 7]).save_pretrained(source)
    assert main(["export", str(source), str(target), "--gguf"]) == 0
    fields = gguf.GGUFReader(target / "model.gguf").fields
    assert [fields[f"tokenizer.ggml.{name}_token_id"].contents() for name in ("eos", "eot")] == [2, 7]
    tokens = fields["tokenizer.ggml.tokens"].contents()
    assert len(tokens) == 310
    assert all(tokens[idx] == token for token, idx in words.get_vocab().items())
    kinds = fields["tokenizer.ggml.token_type"].contents()
    assert [kinds[idx] for idx in (1, 50, 309)] == [
        gguf.TokenType.CONTROL,
        gguf.TokenType.NORMAL,
        gguf.TokenType.UNUSED,
    ]
    read = AutoTokenizer.from_pretrained(target, gguf_file="model.gguf")
    for text in TEXTS:
        assert read(text)["input_ids"] == words(text)["input_ids"]


def test_several_ends_of_answers_are_refused() -> None:
    """llama.cpp knows few of them by name, and would write past the others."""
    for ends, written in ((None, {}), (2, {}), ([2], {}), ([2, 7], {"eot": 7}), (7, {"eot": 7})):
        assert gguf_file.further_end(GenerationConfig(eos_token_id=ends), 2) == written
    with pytest.raises(ValueError, match=r"2 tokens that end a text beside the tokenizer's \(\[7, 8\]\)"):
        gguf_file.further_end(GenerationConfig(eos_token_id=[2, 8, 7]), 2)


def test_what_the_format_has_no_place_for_is_refused(saved, tokenizer, tmp_path, capsys) -> None:
    for fields, complaint in (
        ({"position_embedding_type": "alibi"}, "is llama\nin the way: position_embedding_type is 'alibi'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is 'linear'"),
        (
            {"hidden_act": "gelu"},
            "hidden_act is 'gelu', and GGUF has no key for it: llama.cpp would compute silu",
        ),
        (GPT2 | {"hidden_act": "gelu"}, "activation_function is 'gelu'"),
        (
            {
                "use_qk_norm": True,
                "layer_types": ["sliding_attention", "full_attention"],
                "sliding_window": 4,
            },
            "sliding windows",
        ),
    ):
        source = saved(fields)
        assert main(["export", str(source), str(tmp_path / "file"), "--gguf"]) == 2
        assert complaint in capsys.readouterr().err
    source = saved(KINDS["llama"])
    tokenizer.save_pretrained(source)
    assert main(["export", str(source), str(tmp_path / "file"), "--gguf"]) == 2
    assert "no byte-level BPE by GPT-2's pattern" in capsys.readouterr().err
    assert not (tmp_path / "file").exists()


def test_words_that_merges_do_not_make_are_refused_and_ends_of_texts_are_told(words) -> None:
    """llama.cpp would cut terms into pieces, and the model would read other tokens without a word of that."""
    assert not gguf_file.tokenizer_fields(words, "it")["adds_eos"]
    for term in ("chemokine", "the mat"):
        extended = deepcopy(words)
        add_terms(extended, [term])
        with pytest.raises(ValueError, match=f"as they stand .*{term}"):
            gguf_file.tokenizer_fields(extended, "it")
    backend = words.backend_tokenizer
    for template, adds in (("$A </s>", (False, True)), ("<s> $A", (True, False)), ("$A <pad>", None)):
        backend.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<pad>", 0), ("<s>", 1), ("</s>", 2)]
        )
        if adds is None:
            with pytest.raises(ValueError, match="puts other tokens around a text"):
                gguf_file.tokenizer_fields(words, "it")
        else:
            fields = gguf_file.tokenizer_fields(words, "it")
            assert (fields["adds_bos"], fields["adds_eos"]) == adds


def test_a_file_that_is_read_as_another_model_is_not_kept(saved, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        gguf_file, "in_gguf", lambda name, tensor, config: tensor
    )  # pairs of channels as they are
    source = saved(KINDS["llama"])
    assert main(["export", str(source), str(tmp_path / "file"), "--gguf"]) == 2
    assert "logits that differ by" in capsys.readouterr().err
    assert not (tmp_path / "file").exists()
