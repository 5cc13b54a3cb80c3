"""What goes to the Hub of a run's folder, what stays, and what is found damaged before anything goes."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from transformers import GPT2Config, GPT2LMHeadModel

from tercet.modeling import TercetDecoderConfig, TercetDecoderForCausalLM
from tercet.modeling.saved.remote_code import code_of
from tercet.modeling.stock.certificate import Certificate, Difference
from tercet.tools.push.publication import describe, prepare

MARK = "![a](//b)"
MARKS = {"license": "apache-2.0", "language": "en"}
SCORES = {
    "loss": 2.5,
    "clm/loss": 2.5,
    "clm/perplexity": None,
    "clm/accuracy": 0.25,
    "clm/accuracy/interval": [0.2, 0.3],
    "clm/targets": 100.0,
}
CERTIFICATE = Certificate(
    stock="GPT2LMHeadModel",
    ours="TercetDecoderForCausalLM",
    sha256={"stock": "cd" * 32, "ours": "ef" * 32},
    versions={"torch": "2.13", "python": "3.11"},
    differences=(
        Difference("predictions, padded", "text", "float64", 4e-16, 2.0),
        Difference("predictions, padded", "text", "float32", 4e-7, 0.5),
        Difference("different texts", "text", "float32", 0.0, 0.0),
    ),
    dropped={"transformer.h.0.attn.bias": "a mask"},
)


@pytest.fixture
def run(tmp_path) -> Path:
    """Leave what a run leaves, some of it not for others' eyes."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    folder = tmp_path / "run"
    model = TercetDecoderForCausalLM(TercetDecoderConfig(vocab_size=61, **sizes))
    model.save_pretrained(folder / "model", max_shard_size="30KB")
    recipe = {"corpus": {"train": "/home/me/books.txt"}, "objective": {"kind": "causal_language_modeling"}}
    (folder / "model" / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps({"name_or_path": "/home/me/tok"}))
    (folder / "model" / "tokenizer.json").write_text('{"version": "1.0"}')
    (folder / "model" / "additional_chat_templates").mkdir()
    (folder / "model" / "additional_chat_templates" / "tool_use.jinja").write_text("{{ messages }}")
    CERTIFICATE.save(folder / "model")
    texts = {"train": [{"name": "books.txt", "bytes": 1234, "sha256": "ab" * 32}]}
    (folder / "texts.json").write_text(json.dumps(texts))
    trained_on = {"device": "cpu", "torch": "2.13"}
    evaluation = {"step": 7, "tokens": 4321, "seconds": 61.0, "scores": SCORES, "trained_on": trained_on}
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    (folder / "log.jsonl").write_text('{"flops": 1.0e9}\n{"flops": 2.5e9}\n{"step": 7}\n{"st')
    (folder / "curves.png").write_bytes(b"PNG")
    (folder / "checkpoints").mkdir()
    for name in ("checkpoints/optimizer.safetensors", "model/training_args.bin", "model/notes.txt"):
        (folder / name).write_bytes(b"not for others")
    return folder


def published(folder: Path) -> dict[str, bytes]:
    """Return the contents of what would be sent."""
    sources = {file.path: file.source for file in prepare(folder, "me/small").files}
    return {name: s if isinstance(s, bytes) else s.read_bytes() for name, s in sources.items()}


def card_of(folder: Path) -> ModelCard:
    """Read the card that would be sent."""
    return ModelCard(published(folder)["README.md"].decode())


def test_only_what_others_need_is_sent(run):
    model = run / "model"
    shards = {path.name for path in model.glob("*.safetensors")}
    config = json.loads(published(run)["config.json"])
    expected = {"README.md", "config.json", "generation_config.json", "tokenizer_config.json", "recipe.yaml"}
    expected |= {"tokenizer.json", "additional_chat_templates/tool_use.jinja"}
    expected |= {"certificate.json", "curves.png", "model.safetensors.index.json", *shards}
    assert len(shards) > 1
    assert set(published(run)) == expected | {*code_of(config)}


def test_the_run_and_its_model_folder_mean_the_same(run):
    assert published(run) == published(run / "model")


def test_no_absolute_path_is_sent(run):
    assert not any(
        b"/home/" in content or bytes(run.parent) in content for content in published(run).values()
    )
    assert yaml.safe_load(published(run)["recipe.yaml"])["corpus"]["train"] == "books.txt"


def test_no_path_that_goes_upward_is_sent(run):
    """Not in the recipe, and not in the card, which shows it and says what the model began as."""
    recipe = {
        "model": {"path": "../../alice/client/base"},
        "corpus": {"train": ["../../alice/client/mails.txt", "runs/../../alice/more.txt", "data/own.txt"]},
        "objective": {"kind": "causal_language_modeling"},
        "output": "..",
    }
    (run / "model" / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    tokenizer = {"name_or_path": "../alice/tok"}
    (run / "model" / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    files = published(run)
    assert not any(b"alice" in content for content in files.values())
    assert yaml.safe_load(files["recipe.yaml"])["corpus"]["train"] == [
        "mails.txt",
        "more.txt",
        "data/own.txt",
    ]
    assert "further pretrained from base by" in card_of(run).text


def test_data_sets_of_the_hub_alone_are_linked(run, tmp_path, monkeypatch):
    """A folder that was read as a data set is no id, however it was named, and does not say where it lay."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client" / "mails").mkdir(parents=True)
    names = ["/home/me/client/mails", "../client/mails", "~/mails", "./mails", "client/mails", "me/mails"]
    texts = [{"name": f"{name} (train)", "dataset": name, "fingerprint": "ab"} for name in names]
    (run / "texts.json").write_text(json.dumps({"train": texts}))
    assert card_of(run).data.to_dict()["datasets"] == ["me/mails"]
    assert not any(b"me/client" in content or b"../" in content for content in published(run).values())
    assert "| train | `mails (train)` |" in card_of(run).text
    (run / "texts.json").write_text(json.dumps({"train": texts[:-1]}))
    assert "datasets" not in card_of(run).data.to_dict()


def test_code_that_was_saved_with_a_model_stays_its_own(run):
    config = json.loads((run / "model" / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "mine.Model"}
    (run / "model" / "config.json").write_text(json.dumps(config))
    for name, text in {
        "mine": "from .part import Part\n",
        "part": "class Part: ...\n",
        "notes": "KEY = 1\n",
    }.items():
        (run / "model" / f"{name}.py").write_text(text)
    assert {name for name in published(run) if name.endswith(".py")} == {"mine.py", "part.py"}
    assert json.loads(published(run)["config.json"])["auto_map"] == config["auto_map"]


@pytest.mark.parametrize("reference", ["modeling.Model", "me/else--modeling.Model"])
def test_code_that_is_named_and_not_there_is_that_of_this_installation(run, reference):
    """As after a model of the Hub was loaded by this installation, and saved (transformers issue 24737)."""
    sent, file = published(run), run / "model" / "config.json"
    named = {"AutoConfig": reference, "AutoModelForCausalLM": reference}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"auto_map": named}))
    assert {name for name in published(run) if name.endswith(".py")} == {n for n in sent if n.endswith(".py")}
    assert json.loads(published(run)["config.json"]) == json.loads(sent["config.json"])


def test_a_kernel_of_transformers_may_be_named(run):
    saying(attn_implementation="sdpa")(run / "model" / "config.json")
    assert prepare(run, "me/small").files


@pytest.mark.parametrize("imported", ["/../../private", "../private", ".private", "linked", "absent"])
def test_code_imports_from_its_folder_alone(imported, run):
    (run / "private.py").write_text("KEY = 1\n")
    (run / "model" / ".private.py").write_text("KEY = 1\n")
    (run / "model" / "linked.py").symlink_to(run / "private.py")
    (run / "model" / "mine.py").write_text(f"from .{imported} import KEY\n")
    file = run / "model" / "config.json"
    named = {"auto_map": {"AutoModelForCausalLM": "mine.Model"}}
    file.write_text(json.dumps(json.loads(file.read_text()) | named))
    with pytest.raises(ValueError, match=r"plain names|outside of|not there"):
        prepare(run, "me/small")


@pytest.mark.parametrize(
    "name", ["model/README.md", "model/vocab.txt", "model/recipe.yaml", "texts.json", "curves.png"]
)
def test_no_link_takes_a_file_from_elsewhere_along(name, run):
    outside = run.parent / "private"
    outside.write_text("{}")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    with pytest.raises(ValueError, match=r"is a link to .*private, outside of .*: put a copy"):
        prepare(run, "me/small")


def test_a_run_whose_model_lies_elsewhere_is_not_sent_as_its_own(run):
    shutil.move(run / "model", run.parent / "elsewhere")
    (run / "model").symlink_to(run.parent / "elsewhere")
    with pytest.raises(ValueError, match=r"model is a link to .*elsewhere, outside of"):
        prepare(run, "me/small")
    assert prepare(run.parent / "elsewhere", "me/small").files


def test_files_of_modules_and_plots_go_by_known_names_alone(run):
    modules = [{"path": path, "type": f"sentence_transformers.models.{path}"} for path in ("", "1_Dense")]
    (run / "model" / "modules.json").write_text(json.dumps(modules))
    (run / "model" / "1_Dense" / "mails").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "notes.txt", ".env", "mails/inbox.txt"):
        (run / "model" / "1_Dense" / name).write_bytes(b"{}")
    (run / "holidays.png").write_bytes(b"PNG")
    sent = published(run)
    assert {name for name in sent if "/" in name and "templates" not in name} == {
        "1_Dense/config.json", "1_Dense/model.safetensors",
    }  # fmt: skip
    assert [name for name in sent if name.endswith(".png")] == ["curves.png"]


def test_what_would_be_sent_is_listed_with_where_it_is_from(run):
    lines = describe(prepare(run, "me/small")).splitlines()
    for name, origin in {"README.md": "written anew", "curves.png": f"from {run / 'curves.png'}"}.items():
        assert [line for line in lines if line.split()[:1] == [name] and line.endswith(origin)], name


def test_labels_stay_in_the_order_of_their_numbers(run):
    file, names = run / "model" / "config.json", {str(number): f"n{number}" for number in range(12)}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"id2label": names}))
    assert list(json.loads(published(run)["config.json"])["id2label"]) == [*names]


def test_stock_models_take_no_code_along(run):
    for file in (run / "model").glob("model*"):
        file.unlink()
    GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=8, n_layer=1, n_head=2)).save_pretrained(run / "model")
    assert not any(name.endswith(".py") for name in published(run))
    assert "trust_remote_code" not in card_of(run).text


def truncate(path: Path) -> None:
    """Take the last bytes of a file away."""
    path.write_bytes(path.read_bytes()[:-4])


def spoil(path: Path) -> None:
    """Write nonsense over a file's beginning."""
    path.write_bytes(b"\xff" * 16 + path.read_bytes()[16:])


def swap(path: Path) -> None:
    """Let a shard hold what the index does not say."""
    other = next(p for p in sorted(path.parent.glob("*.safetensors"), reverse=True) if p != path)
    shutil.copy(other, path)


def fold(path: Path) -> None:
    """Let ten lines of a recipe name each other, so that they stand for 9 ** 10 values."""
    lines = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 10)]
    path.write_text("\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *lines]))


def saying(**facts: Any) -> Callable[[Path], None]:
    """Let a JSON file say something else, or nothing where a fact is `None`."""

    def change(path: Path) -> None:
        told = json.loads(path.read_text()) | facts
        path.write_text(json.dumps({name: fact for name, fact in told.items() if fact is not None}))

    return change


DAMAGES = [
    ("model-00001*", truncate, "is damaged"),
    ("model-00001*", spoil, "is damaged"),
    ("model-00001*", Path.unlink, "which is not there"),
    ("model-00001*", swap, "lacks"),
    ("*.index.json", spoil, "is damaged"),
    ("*.index.json", Path.unlink, "holds no weights"),
    ("config.json", spoil, "is damaged"),
    ("config.json", Path.unlink, "has no trained model"),
    ("recipe.yaml", spoil, "is damaged"),
    ("recipe.yaml", fold, "is damaged"),
    ("tokenizer_config.json", spoil, "is damaged"),
    ("tokenizer.json", truncate, "is damaged"),
    ("../log.jsonl", spoil, "is damaged"),
    ("certificate.json", spoil, "is damaged"),
    ("certificate.json", saying(differences=[{"what": "loss"}]), "is not a file of `tercet import`"),
    ("certificate.json", saying(stock=None, ours=None), "is not a file of `tercet import`"),
    ("README.md", lambda path: path.write_text("---\nlicense: [\n---\n"), "(?s)cannot be read .*correct it"),
    # Who loads the model with trust_remote_code=True would run the code of others.
    (
        "tokenizer_config.json",
        saying(auto_map={"AutoTokenizer": [None, "them/theirs--code.T"]}),
        r"names code .* \(them/theirs--code\.T\), .*: remove",
    ),
    ("config.json", saying(attn_implementation="them/kernel"), r"names code .* \(them/kernel\), .*: remove"),
    ("config.json", saying(attn_implementation={"": "them/kernel"}), r"names code .* \(them/kernel\)"),
]


@pytest.mark.parametrize(("pattern", "damage", "message"), DAMAGES)
def test_damage_and_code_of_others_are_named_with_the_file(pattern, damage, message, run):
    file = next(iter((run / "model").glob(pattern)), run / "model" / pattern)
    damage(file)
    with pytest.raises(ValueError, match=message) as raised:
        prepare(run / "model", "me/small")
    assert file.name in str(raised.value) or "safetensors" in str(raised.value)
    assert ": " in str(raised.value)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no trained model.*name the folder"):
        prepare(tmp_path / "nowhere", "me/small")


def test_the_card_tells_what_the_run_left(run):
    text = card_of(run).text
    parameters = TercetDecoderForCausalLM.from_pretrained(run / "model").num_parameters()
    for fact in (f"{parameters:,} parameters", "4,321", "2.5e+09 FLOPs", "0:01:01", "ab" * 32, "1,234"):
        assert fact in text
    assert r"0.25 \[0.2, 0.3\]" in text
    assert "![curves](curves.png)" in text


def test_the_card_shows_the_figures_of_the_certificate(run):
    text = card_of(run).text
    assert "GPT2LMHeadModel and TercetDecoderForCausalLM are equal." in text
    assert "| compared | on | float64 | float32 |" in text
    assert "| predictions, padded | text | 2.0e-16 | 4.0e-07 |" in text
    assert "| different texts | text |  | 0.0e+00 |" in text
    assert "Without transformer.h.0.attn.bias: a mask." in text
    assert "With torch 2.13, python 3.11. [certificate.json](certificate.json) has the hashes" in text


def test_texts_of_others_mean_nothing_to_markdown(run):
    """Who has made the folder could put a picture of their server, or a link, into a card of one's own."""

    def marked(value, key=""):
        if isinstance(value, dict):
            return {each: marked(inner, each) for each, inner in value.items()}
        if isinstance(value, list):
            return [marked(each, key) for each in value]
        return f"{MARK} {value}" if isinstance(value, str) and key != "precision" else value

    for name in ("texts.json", "evaluation.json", "model/certificate.json"):
        facts = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(marked(facts | {"split": "test"} if "scores" in facts else facts)))
    for kind in ("objective", "task"):
        recipe = marked({kind: {"kind": "own"}, "model": {"path": "theirs"}})
        (run / "model" / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        text = re.sub(r"```.*?```|`[^`\n]*`", "", card_of(run).text, flags=re.DOTALL)
        assert MARK not in text, text[text.index(MARK) - 100 :][:200]
        assert text.count(r"!\[a\](//b)") > 5


def test_the_hub_finds_the_scores_in_the_metadata(run):
    results = card_of(run).data.eval_results
    assert results is not None
    assert {result.metric_type: result.metric_value for result in results} == {"loss": 2.5, "accuracy": 0.25}
    assert {result.task_type for result in results} == {"text-generation"}


def test_a_bare_model_has_a_card_that_says_less(run, tmp_path):
    shutil.copytree(run / "model", tmp_path / "bare")
    for name in ("recipe.yaml", "certificate.json"):
        (tmp_path / "bare" / name).unlink()
    text = card_of(tmp_path / "bare").text
    assert "## How to load it" in text
    assert not any(heading in text for heading in ("## Training", "## Data", "## Results", "## Certificate"))
    missing = prepare(tmp_path / "bare", "me/small").missing
    assert [line.partition(" (")[0].partition(":")[0] for line in missing] == [
        *MARKS,
        "the recipe",
        "the texts and their hashes",
        "scores",
        "a plot of the losses",
        "the FLOPs of the training",
    ]


def test_metadata_beside_the_model_completes_the_card(run):
    (run / "model" / "README.md").write_text(f"---\n{yaml.safe_dump(MARKS)}---\n")
    card = card_of(run)
    assert card.data.to_dict().items() >= MARKS.items()
    assert "## Results" in card.text
    assert "the card lacks nothing" in describe(prepare(run, "me/small"))


def test_a_card_of_ones_own_is_sent_as_it_is(run):
    own = f"---\n{yaml.safe_dump(MARKS)}---\n\n# Mine\n"
    (run / "model" / "README.md").write_text(own)
    assert published(run)["README.md"].decode().split() == own.split()


def test_the_citation_is_the_projects():
    from tercet.tools.push import model_card

    citation = yaml.safe_load((Path(__file__).parents[3] / "CITATION.cff").read_text())
    assert citation["title"] == model_card.TITLE
    assert [author["name"] for author in citation["authors"]] == [model_card.AUTHORS]
    assert citation["license"] == model_card.LICENSE
    assert f"version = {{{citation['version']}}}" in model_card.citation()
