"""Whatever is wrong is said in one line, with the value and the remedy."""

from contextlib import nullcontext
from copy import deepcopy

import pytest
from transformers import AutoTokenizer, BigBirdConfig, BigBirdForMaskedLM, XLMConfig, XLNetConfig

from tercet.configs.recipe import parse_recipe
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.fewshot.member import member_of
from tercet.fewshot.prompts.request import Request, Score, Scorer
from tercet.fewshot.recipe import FewShotRecipe
from tercet.fewshot.run import fewshot
from tercet.fewshot.scoring.score_cache import ScoreCache
from tercet.fewshot.subject import load_subject, require_scorable
from tercet.modeling import TercetDecoderForSequenceClassification
from tercet.modeling.saved.checkpoint import Checkpoint

from .conftest import TEXT, build, write_rows

ROWS = [
    {"question": "the cat sat", "choices": ["yes", "no"], "gold": 0},
    {"question": "the dog ran", "choices": ["yes", "no"], "gold": 1},
]
TASK = {"kind": "multiple_choice", "context": "{{ question }}", "choices": "choices", "target": "gold"}
COMPLETION = {"kind": "completion", "context": "{{ question }}", "answer": "{{ choices[0] }}"}

WRONG = {
    "shots beyond the split": ({"prompting": {"num_fewshot": [0, 8]}},
        r"prompting.num_fewshot is 8, but .*rows.jsonl has 2 rows, one of which is the query: ask for fewer"),
    "missing column": ({"task": TASK | {"context": "{{ questoin }}"}},
        r"task.context names 'questoin', which .*rows.jsonl has no column for; did you mean question\?"),
    "empty choice": ({"rows": [*ROWS, {"question": "the fish", "choices": ["yes", " "], "gold": 0}]},
        r"rows.jsonl, row 3: task.choices gives the empty answer ' ' \(number 1\): fill it in"),
    "long answer": ({"task": COMPLETION | {"answer": "{{ 'cat ' * (300 if gold else 1) }}"}},
        r"row 2: an answer of \d+ tokens is longer than the maximum .*decoder \(192 tokens\): shorten it"),
    "long suffix": ({"models": ["encoder"], "task": TASK | {"suffix": " cat" * 300}},
        r"an answer of \d tokens with \d+ behind it is longer than the maximum .*: shorten the suffix"),
    "answer that is none": ({"rows": [ROWS[0] | {"gold": 2}]},
        r"row 1: task.target gives 2, which is none of yes, no: correct it"),
    "no template": ({"task": TASK | {"context": "{{ question"}},
        r"task.context = .* is not a valid template"),
    "no value": (
        {"rows": [ROWS[0] | {"question": {"a": 1}}], "task": TASK | {"context": "{{ question.b.c }}"}},
        r"row 1: task.context = .* cannot be rendered",
    ),
    "null in a text": ({"rows": [ROWS[0] | {"question": None}]},
        r"row 1: task.context = .* cannot be rendered \(a value is null\): correct the row, or the template"),
    "null among choices": ({"rows": [ROWS[0] | {"choices": ["yes", None]}]},
        r"row 1: task.choices gives the empty answer None \(number 1\): fill it in"),
    "right answer that is null": ({"rows": [*ROWS, ROWS[0] | {"gold": None}]},
        r"rows.jsonl, row 3: task.target gives None: give the correct answer, or exclude the row"),
    "right answer that is NaN": ({"rows": [*ROWS, ROWS[0] | {"gold": float("nan")}]},
        r"rows.jsonl, row 3: task.target gives nan: give the correct answer, or exclude the row"),
    "right answer that is missing": ({"rows": [*ROWS, {"question": "the fish", "choices": ["yes", "no"]}]},
        r"rows.jsonl, row 3: task.target = 'gold' cannot be rendered \('gold' is undefined\): correct"),
    "condition on what is missing": (
        {"rows": [*ROWS, {"question": "the fish", "choices": ["yes", "no"]}], "data": {"where": "gold"}},
        r"rows.jsonl, row 3: data.where = 'gold' cannot be rendered \('gold' is undefined\): correct",
    ),
    "condition that is a text": (
        {"rows": [row | {"keep": "False"} for row in ROWS], "data": {"where": "keep"}},
        r"rows.jsonl, row 1: data.where = 'keep' gives 'False', which is neither true nor false: "
        r"compare it with something, as in keep == 'False'",
    ),
    "condition that is a list": ({"data": {"where": "choices or 1"}},
        r"data.where = 'choices or 1' gives \['yes', .*neither true nor false: .*as in \(choices or 1\) == "),
    "group that is missing": ({"rows": [ROWS[0] | {"kind": 1}, ROWS[1]], "task": TASK | {"group": "kind"}},
        r"rows.jsonl, row 2: task.group = 'kind' cannot be rendered \('kind' is undefined\): correct"),
    "missing among choices": (
        {"rows": [ROWS[0] | {"other": "a"}, ROWS[1]], "task": TASK | {"choices": "[question, other]"}},
        r"row 2: task.choices = '\[question, other\]' cannot be rendered \('other' is undefined\): correct",
    ),
    "NaN in a text": ({"rows": [*ROWS, ROWS[0] | {"question": float("nan")}]},
        r"rows.jsonl, row 3: task.context = .* cannot be rendered \(a value is NaN\): correct the row"),
    "NaN among choices": ({"rows": [*ROWS, ROWS[0] | {"choices": ["yes", float("nan")]}]},
        r"rows.jsonl, row 3: task.choices gives the empty answer nan \(number 1\): fill it in"),
    "too few to demonstrate a row": ({"rows": [*ROWS, ROWS[0], ROWS[0]], "prompting": {"num_fewshot": [3]}},
        r"rows.jsonl, row 1: prompting.num_fewshot is 3, but there are 1 different rows with"),
    "answer without tokens": (
        {"models": ["encoder"], "rows": [*ROWS, ROWS[0] | {"choices": ["yes", "\x07"]}]},
        r"rows.jsonl, row 3: the answer ' .x07' has no tokens of its own: correct the row",
    ),
    "continuation without text": (
        {
            "task": {
                "kind": "partial_evaluation",
                "contexts": "choices",
                "continuation": " ",
                "target": "gold",
            }
        },
        r"rows.jsonl, row 1: task.continuation gives the empty answer ' ' \(number 0\): fill it in",
    ),
    "choices that are equal": ({"task": TASK | {"choices": ["yes", "no", "yes"]}},
        r"task.choices has 'yes' more than once: give every choice a text of its own"),
    "one choice": ({"rows": [ROWS[0] | {"choices": ["yes"]}]}, r"not a list of 2 or more: correct the row"),
    "no rows": ({"data": {"where": "gold == 7"}}, r"has no rows of which data.where is true: name some"),
    "empty file": ({"rows": []}, r"rows.jsonl has no rows: name a file that has some"),
    "no file": ({"data": {"test": "absent.jsonl"}}, r".*absent.jsonl does not exist: name one that ends in"),
    "no model": ({"models": []}, r"no model is named: pass --model, or set models in the recipe"),
    "shots of sentences": (
        {"task": {"kind": "perplexity", "text": "{{ question }}"}, "prompting": {"num_fewshot": [1]}},
        r"prompting.num_fewshot is \[1\], but a task of kind perplexity has no "
        r"demonstrations: set prompting.num_fewshot=\[0\]",
    ),
    "balanced without labels": ({"prompting": {"num_fewshot": [1], "balanced": True}},
        r"only fixed choices can be balanced, so set prompting.balanced=false"),
    "cloze without a hole": (
        {"task": {"kind": "cloze", "text": "{{ question }}", "choices": ["a", "b"], "target": "gold"}},
        r"must have one blank ___",
    ),
    "calibrated choices of rows": ({"task": TASK | {"normalization": "calibrated"}},
        r"task.normalization is calibrated, which needs a fixed list of .* or set task.normalization=none"),
    "calibrated contexts": (
        {
            "task": {
                "kind": "partial_evaluation",
                "contexts": "choices",
                "continuation": "{{ question }}",
                "target": "gold",
                "normalization": "calibrated",
            }
        },
        r"task.normalization is calibrated, which needs a fixed list of .* or set task.normalization=none",
    ),
    "calibrated without texts": (
        {"task": TASK | {"choices": ["yes", "no"], "normalization": "calibrated", "content_free": []}},
        r"and texts in task.content_free: set both, or set task.normalization=none",
    ),
    "template that calibration cannot fill in": (
        {"task": TASK | {"choices": ["yes", "no"], "context": "{{ question }} {{ gold + 1 }}"}},
        r"cannot be rendered with 'N/A' in all columns, for calibration: set task.content_free",
    ),
    "choices that may be numbers": ({"task": TASK | {"choices": ["1", "0"]}},
        r"row 1: task.target gives 0, which is the index of one choice and the text of another"),
    "sentinel": ({"models": ["seq2seq-without-sentinels"], "prompting": {"sentinel": True}},
        r"prompting.sentinel is true, but the tokenizer has no <extra_id_0>: set prompting.sentinel=false"),
    "encoder without a mask": ({"models": ["encoder-without-mask"]},
        r"cloze scoring with .* needs a mask, but the tokenizer has no mask_token: add one"),
    "encoder that is to write": (
        {"models": ["encoder"], "task": COMPLETION | {"kind": "generation", "answer": None}},
        r"is an encoder, which cannot generate: use a task with choices instead",
    ),
    "weights that are not finite": ({"models": ["decoder-broken"]},
        r"model.safetensors has weights that are not finite in 1 tensor \(model\.\S+\): the training has"),
    "positions that begin behind no pad": ({"models": ["roberta-without-pad"]},
        r"roberta, which counts positions from its pad_token_id, but its configuration has none: set it"),
    "head for labels": ({"models": ["classifier"]},
        r"is a TercetDecoderForSequenceClassification, which has no LM head"),
}  # fmt: skip


def broken(saved, tmp_path, name):
    """Save a model whose weights or settings are not those of one that can be asked."""
    model = load_subject(Checkpoint.open(str(saved(name.partition("-")[0]))))
    weights, config = deepcopy(model.model), deepcopy(model.model.config)
    if name == "roberta-without-pad":
        config.pad_token_id = None
        weights.config = config
    else:
        next(weights.parameters()).data[3] = float("nan")
    weights.save_pretrained(tmp_path / name)
    model.tokenizer.save_pretrained(tmp_path / name)
    return tmp_path / name


@pytest.fixture
def model_of(saved, tmp_path):
    """Save a model that lacks something."""

    def make(name):
        if name == "seq2seq-without-sentinels":
            tokenizer = train_tokenizer(TEXT, "unigram", 400, template="end")
        elif name == "encoder-without-mask":
            tokenizer = AutoTokenizer.from_pretrained(saved("encoder"))
            tokenizer.mask_token = None
        elif name in ("decoder-broken", "roberta-without-pad"):
            return broken(saved, tmp_path, name)
        elif name == "classifier":
            decoder = load_subject(Checkpoint.open(str(saved("decoder"))))
            TercetDecoderForSequenceClassification(decoder.model.config).save_pretrained(tmp_path / name)
            decoder.tokenizer.save_pretrained(tmp_path / name)
            return tmp_path / name
        else:
            return saved(name)
        build(name.partition("-")[0], tokenizer).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return tmp_path / name

    return make


@pytest.mark.parametrize("config", [XLNetConfig(), XLMConfig(architectures=["XLMWithLMHeadModel"])])
def test_what_is_none_of_the_members_is_refused(config, tmp_path):
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"a model of type {config.model_type} is not supported"):
        member_of(Checkpoint.open(str(tmp_path)))


def test_only_unknown_models_are_said_to_be_unknown(saved, monkeypatch):
    def fail(*arguments, **keywords):
        raise ValueError("automatic conversion failed")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", fail)
    with pytest.raises(ValueError, match="automatic conversion failed"):
        load_subject(Checkpoint.open(str(saved("gpt2"))))


def test_attention_that_depends_on_the_batch_is_refused():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    for kind, is_refused in (("block_sparse", True), ("original_full", False)):
        model = BigBirdForMaskedLM(BigBirdConfig(**sizes, vocab_size=99, attention_type=kind))
        with pytest.raises(ValueError, match="set attention_type to") if is_refused else nullcontext():
            require_scorable("bird", model)


def test_scores_that_are_no_numbers_are_refused():
    class Overflowing(Scorer):
        def score(self, requests):
            yield 0, Score((-1.0, float("nan")), False)

    kept = ScoreCache(Overflowing())
    with pytest.raises(
        ValueError, match=r"log-likelihoods \[-1.0, nan\]: its numbers overflow, so set prompting"
    ):
        kept.score_all([Request((1,), (2, 3))])


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line_with_a_remedy(name, model_of, tmp_path):
    parts, message = WRONG[name]
    parts = dict(parts)
    write_rows(tmp_path / "rows.jsonl", parts.pop("rows", ROWS))
    task = parts.pop("task", TASK)
    if task["kind"] == "generation":
        task = {"kind": "generation", "context": task["context"], "answers": "{{ choices[0] }}"}
    data = {
        "task": task,
        "data": {"test": str(tmp_path / "rows.jsonl")} | parts.pop("data", {}),
        "models": [str(model_of(each)) for each in parts.pop("models", ["decoder"])],
        "output": str(tmp_path / "run"),
    }
    recipe = parse_recipe(FewShotRecipe, data | parts)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        fewshot(recipe)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "evaluation.json").exists()


def test_a_head_is_chosen_for_decoders_of_ours_alone(saved):
    with pytest.raises(ValueError, match=r"prompting\.head is masked_lm, but .* is a tercet_encoder"):
        load_subject(Checkpoint.open(str(saved("encoder"))), head="masked_lm")
