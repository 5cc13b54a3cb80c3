"""The code beside the weights: every model computes the same where Tercet is not, from two files."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tercet.modeling.saved import remote_code
from tercet.modeling.saved.model_folder import load_tokenizer
from tercet.modeling.saved.remote_code import (
    Module,
    Statement,
    add_auto_map,
    code_of,
    require_unique,
    save_code,
)
from tercet.tools.convert.static_vectors import build

from ...architectures import AUTO_CLASSES, CONFIGURATIONS
from ...small_elmo import small_config
from ...small_taggers import build_new_tagger, save_sources

SIZES = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
FIELDS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("tercet_encoder", "tercet_decoder", "tercet_seq2seq"), SIZES | {"num_attention_heads": 4}
    ),
    "tercet_character": {"vocab_size": 61, "hidden_size": 16, "embedding_size": 8},
    "tercet_recurrent_seq2seq": {"vocab_size": 61, "hidden_size": 16, "embedding_size": 16},
}
CASES = {
    f"{auto.__name__}-{model.__name__}": model for auto, models in AUTO_CLASSES.items() for model in models
}
"""Every model, by each Auto class that loads it."""

LOAD = """
import pathlib, torch, transformers
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    auto = getattr(transformers, folder.name.partition("-")[0])
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    assert config.model_type in auto._model_mapping._model_mapping  # as lm-eval looks it up
    model = auto.from_pretrained(folder, trust_remote_code=True).eval()
    assert "transformers_modules" in type(model).__module__
    assert type(model).__name__ == folder.name.partition("-")[2]
    inputs, expected, written = torch.load(folder / "expected.pt", weights_only=True)
    found = {name: value for name, value in model(**inputs).items() if isinstance(value, torch.Tensor)}
    assert found.keys() == expected.keys(), folder.name
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=lambda text: f"{folder.name} {name}: {text}")
    if written is not None:
        assert torch.equal(model.generate(inputs["input_ids"], max_new_tokens=4, do_sample=False), written)
    print(folder.name)
assert not any(name == "tercet" or name.startswith("tercet.") for name in sys.modules)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """Write every model with its code, what it is asked, and what it answers."""
    folder, sources = tmp_path_factory.mktemp("models"), save_sources(tmp_path_factory.mktemp("sources"))
    for name, architecture in CASES.items():
        torch.manual_seed(0)
        model = build_model(architecture, sources).eval()
        model.save_pretrained(folder / name)
        save_code(folder / name)
        inputs = inputs_of(name)
        answers = {key: value for key, value in model(**inputs).items() if isinstance(value, Tensor)}
        written = None
        if model.can_generate():
            written = model.generate(inputs["input_ids"], max_new_tokens=4, do_sample=False)
        torch.save((inputs, answers, written), folder / name / "expected.pt")
    return folder


def build_model(architecture: type, sources: Path) -> Any:
    """Build a small model; word vectors and taggers read others."""
    kind = architecture.config_class.model_type
    if kind == "tercet_tagger":
        tagger = build_new_tagger(sources, "static", "characters", "elmo")
        return tagger if architecture is type(tagger) else tagger.model
    if kind == "tercet_word_vectors":
        return build(["the", "cat"], torch.randn(2, 10), torch.randn(20, 10))
    if kind == "tercet_elmo":
        model = architecture(small_config())
        getattr(model, "model", model).learn_spelling(load_tokenizer(sources / "elmo"))
        return model
    return architecture(architecture.config_class(**FIELDS[kind]))


def inputs_of(name: str) -> dict[str, Tensor]:
    """Make inputs, with labels where the loss is of one head."""
    shape = (2, 3, 5) if "MultipleChoice" in name else (2, 5)
    ids = torch.randint(3, 61, shape, generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": ids}
    if name.endswith(("Seq2SeqModel", "ForConditionalGeneration")):
        inputs["decoder_input_ids"] = ids
    if name.endswith(("ForMaskedLM", "ForCausalLM", "ForConditionalGeneration", "LanguageModeling")):
        inputs["labels"] = ids
    if name.endswith(("SequenceClassification", "MultipleChoice", "NextSentencePrediction")):
        inputs["labels"] = torch.tensor([0, 1])
    if name.endswith("QuestionAnswering"):
        inputs |= {"start_positions": torch.tensor([0, 1]), "end_positions": torch.tensor([2, 3])}
    return inputs


@pytest.mark.parametrize("version", ["4.57.6", "5.0.0rc1", "5.16.2", "5.17.0", "5.24.0.dev0", "6.0.0"])
def test_the_code_says_which_versions_it_needs_before_it_imports_their_names(version, monkeypatch):
    monkeypatch.setattr("transformers.__version__", version)
    model = next(iter(CASES.values()))
    assert model.config_class is not None
    config = model.config_class().to_dict() | {"architectures": [model.__name__]}
    for text in code_of(add_auto_map(config)).values():
        head = text.partition("\n\n")[2].partition("\n\nimport math")[0].partition("\n\nfrom ")[0]
        assert head.startswith("import transformers\n")
        if version in ("4.57.6", "5.0.0rc1", "5.16.2"):
            with pytest.raises(ImportError, match=rf"needs transf.*>=5.17.*{version} is .*tercet export"):
                exec(head)
        else:
            exec(head)


@pytest.mark.slow
def test_every_model_computes_the_same_where_tercet_is_not(saved, tmp_path):
    importable = f"import sys; sys.path.append({str(Path(torch.__file__).parents[1])!r})\n"
    process = subprocess.run(
        # Isolated from the checkout and from editable installations: tercet cannot be imported.
        [sys.executable, "-I", "-S", "-c", importable + LOAD, str(saved)],
        env={
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "1",
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == sorted(CASES)


def test_code_is_two_files_that_need_nothing_of_this_package(saved):
    for folder in saved.iterdir():
        files = {path.name: path.read_text() for path in folder.glob("*.py")}
        kind = json.loads((folder / "config.json").read_text())["model_type"]
        assert files.keys() == {f"configuration_{kind}.py", f"modeling_{kind}.py"}
        assert set(re.findall(r"from \.(\w+)", "".join(files.values()))) == {f"configuration_{kind}"}


@pytest.mark.parametrize("kind", CONFIGURATIONS, ids=lambda kind: kind.model_type)
def test_definitions_keep_their_text_and_stand_once(kind):
    text = "".join(code_of(add_auto_map({"model_type": kind.model_type})).values())
    ours = [
        each
        for path in remote_code.MODELING.rglob("[!_]*.py")
        if path.parent.name not in ("saved", "stock")
        for each in remote_code.parsed(path).statements
    ]
    there = {name for name in re.findall(r"^(?:class|def) (\w+)", text, re.MULTILINE) if name != "_"}
    assert kind.__name__ in there
    for statement in ours:
        if statement.defines & there:
            assert text.count(statement.text) == 1


def test_a_name_that_means_two_things_is_refused():
    statements = [Statement("a", f"SIZE = {value}", frozenset({"SIZE"}), frozenset()) for value in (1, 2)]
    modules = [Module(name, "", [each]) for name, each in zip("ab", statements, strict=True)]
    with pytest.raises(ValueError, match=r"SIZE of modeling/b.py means something else"):
        require_unique(modules)
    require_unique([modules[0], modules[0]])


def test_a_stock_model_stays_as_it_is(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    save_code(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == '{"model_type": "gpt2"}'


def test_only_classes_of_this_package_are_written_by_it_once_they_are_registered(tmp_path):
    class Derived(CONFIGURATIONS[0]):
        pass

    Derived.register_for_auto_class()
    assert Derived._auto_class == "AutoConfig"
    CONFIGURATIONS[0]().save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
