"""What is downloaded of a repository on the Hub: what models, tokenizers and modules are read by."""

from huggingface_hub.utils import filter_repo_objects

from tercet.modeling.saved.model_folder import IGNORED, WANTED


def test_weights_of_modules_are_downloaded_and_those_of_other_programs_are_not() -> None:
    wanted = [
        *("config.json", "model.safetensors", "model-00001-of-00002.safetensors", "modules.json"),
        *("tokenizer.json", "vocab.txt", "spiece.model", "chat_template.jinja", "modeling.py"),
        *("additional_chat_templates/tool.jinja", "1_Pooling/config.json"),
        *("2_Dense/config.json", "2_Dense/model.safetensors"),
    ]
    others = [
        *("pytorch_model.bin", "tf_model.h5", "2_Dense/pytorch_model.bin", "onnx/model.onnx"),
        *("onnx/config.json", "checkpoint-5/model.safetensors", "archive/model.safetensors"),
    ]
    names = [*wanted, *others]
    assert [*filter_repo_objects(names, allow_patterns=WANTED, ignore_patterns=IGNORED)] == wanted
