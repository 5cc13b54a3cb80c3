"""A decoder learns the assistant's turns and nothing else, and answers afterwards as it learned to."""

import json
import random
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

import tercet
from tercet.configs.recipe import parse_recipe
from tercet.data.files import template_process
from tercet.data.files.bad_rows import RowError
from tercet.data.steps.examples import pick
from tercet.data.steps.objective import IGNORE
from tercet.finetune.inputs import find_inputs
from tercet.finetune.prediction import predict_file
from tercet.finetune.prepared import prepare
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.tasks.chat import Chat, ChatObjective, ChatRecipe, answer
from tercet.finetune.tasks.chat_encoding import (
    DEFAULT_TEMPLATE,
    EncodedDialogue,
    encode_dialogues,
    encode_prompts,
    end_of_answers,
)
from tercet.finetune.tasks.task import build_task
from tercet.modeling.generation.writing import read_out

from ..reported import finetune
from .conftest import WORDS, write_rows

CHATML = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|end|>\n' }}{% endgeneration %}{% else %}"
    "{{ message['content'] + '<|end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def encode(messages, tokenizer) -> EncodedDialogue:
    return encode_dialogues([messages], tokenizer, 10**6)[0]


def dialogue(draw, turns):
    """Make turns in which the assistant repeats the last word that it was told."""
    messages = [{"role": "system", "content": "repeat"}] if draw.random() < 0.5 else []
    for _ in range(turns):
        words = draw.choices(WORDS, k=draw.randint(1, 3))
        messages += [
            {"role": "user", "content": " ".join(words)},
            {"role": "assistant", "content": words[-1]},
        ]
    return messages


def rows(count, seed):
    draw = random.Random(seed)
    return [{"messages": dialogue(draw, draw.randint(1, 2))} for _ in range(count)]


@pytest.fixture
def recipe_on(bases, tmp_path):
    """Make a recipe for the tiny decoder on rows."""

    def make(train, held_out, task=None, **training):
        files = {
            name: str(write_rows(tmp_path / f"{name}.jsonl", own))
            for name, own in (("train", train), ("validation", held_out))
        }
        return parse_recipe(
            FineTuningRecipe,
            {
                "model": {"path": str(bases / "decoder")},
                "task": {"kind": "chat", **(task or {})},
                "data": files,
                "training": {"epochs": 1, "batch_size": 4, "precision": "fp32", **training},
                "output": str(tmp_path / "run"),
            },
        )

    return make


@pytest.mark.parametrize("template", [DEFAULT_TEMPLATE, CHATML])
def test_answers_found_by_prefixes_are_those_that_the_template_marks(template, families):
    """Both are transformers' mask where each character has a token; wordpiece has none for a line break."""
    unmarked = template.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    draw = random.Random(0)
    for name in ("byte_bpe", "unigram", "wordpiece", "roberta"):
        tokenizer = families[name]
        for turns in (1, 2, 3, 3):
            messages = dialogue(draw, turns)
            tokenizer.chat_template = unmarked
            found = encode(messages, tokenizer)
            tokenizer.chat_template = template
            expected = encode(messages, tokenizer)
            assert found.ids.tolist() == expected.ids.tolist()
            assert found.is_target.tolist() == expected.is_target.tolist()
            assert np.diff(np.concatenate(([0], found.is_target, [0]))).tolist().count(1) == turns
            if name in ("byte_bpe", "roberta"):
                told = tokenizer.apply_chat_template(
                    messages, return_dict=True, return_assistant_tokens_mask=True
                )
                assert found.ids.tolist() == told["input_ids"]
                assert found.is_target.tolist() == list(map(bool, told["assistant_masks"]))
        tokenizer.chat_template = None


def test_spaces_are_learned_whatever_a_tokenizer_tells_of_them(families):
    """Offsets without spaces (GPT-NeoX's) leave tokens of indentation empty (transformers#33237)."""
    code = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "if  x:\n        y = 1  "}]
    found = []
    for name in ("roberta", "untrimmed"):
        families[name].chat_template = DEFAULT_TEMPLATE
        found.append(encode(code, families[name]).is_target.tolist())
        families[name].chat_template = None
    assert found[0] == found[1]


ENDLESS = {
    "power": ("{{ 9**(9**9) }}", 1),
    "loops": ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", 68),
    "long text": ("{{ 'a' * 3_600_000_000 }}", 68),
    "many texts": ("{% for i in range(99999) %}{{ 'long ' * 2000 }}{% endfor %}", 68),
}
"""Template -> the row on which it ends; that of the power is computed before any row is read."""


@pytest.mark.parametrize("name", ENDLESS)
def test_no_chat_template_goes_on_without_end(name, families, monkeypatch):
    monkeypatch.setattr(template_process, "MOST_SECONDS", 0.2)
    endless, row = ENDLESS[name]
    dialogues = [each["messages"] for each in rows(70, 0)]
    dialogues[67] = [{"role": "user", "content": "now"}, {"role": "assistant", "content": "cat"}]
    tokenizer = families["byte_bpe"]
    tokenizer.chat_template = f"{{% if messages[0].content == 'now' %}}{endless}{{% endif %}}{CHATML}"
    told = r"it takes more than 0\.2 seconds|it needs more than 512 MiB of memory|it makes more than 67,"
    refusal = rf"^row {row} cannot be written by .* \(({told}).*\): correct"
    with pytest.raises(RowError, match=refusal):
        encode_dialogues(dialogues, tokenizer, 10**6)
    tokenizer.chat_template = CHATML
    assert len(encode_prompts(dialogues, tokenizer)) == 70, "the next template is filled in"
    tokenizer.chat_template = None


def test_a_template_that_cannot_end_is_refused_before_rows_are_read(families):
    tokenizer = families["byte_bpe"]
    tokenizer.chat_template = "{{ 'a' * 3_600_000_000 }}"
    with pytest.raises(
        ValueError, match=r"a message of the user and its answer \(it needs more than 512 MiB"
    ):
        end_of_answers(tokenizer)
    tokenizer.chat_template = None


def test_messages_that_a_template_leaves_out_are_told_of(families, recwarn):
    """gpt-oss's leaves out those of the system behind the first message; one that trims leaves out none."""
    tokenizer = families["byte_bpe"]
    rule, question, answer = (
        {"role": role, "content": f" {role} says so\n"} for role in ("system", "user", "assistant")
    )
    dialogues = [[rule, question, answer], [question, answer, rule, question, answer]]
    written = "{{ '<|' + message.role + '|>' + message.content | trim }}"
    dropping = f"{{% if loop.first or message.role != 'system' %}}{written}{{% endif %}}"
    for template, told in (
        (written, []),
        (
            dropping,
            ["in 2 dialogues, the tokenizer's chat template leaves out or changes 1 of 'system': "] * 2,
        ),
    ):
        tokenizer.chat_template = f"{{% for message in messages %}}{template}{{% endfor %}}"
        encode_dialogues(dialogues, tokenizer, 10**6)
        encode_prompts(dialogues, tokenizer)
        found = [str(recwarn.pop().message) for _ in range(len(recwarn))]
        assert len(found) == len(told)
        assert all(part in message for part, message in zip(told, found, strict=True))
    tokenizer.chat_template = None


WRITTEN = {
    "default": DEFAULT_TEMPLATE,
    "chatml": CHATML,
    "special tokens": "{{ bos_token }}{{ messages[-1].content | trim }}{{ eos_token }}{{ pad_token }}",
    "namespace": "{% set ns = namespace(n=0) %}{% for _ in [1, 2] %}{% set ns.n = 1 %}{% endfor %}{{ ns.n }}",
    "white space": "\n  {% if messages %}\n{{ messages[0] | tojson(indent=2) }}\n  {% endif %}\n",
    "loop controls": "{% for m in messages %}{{ m.content }}{% if m %}{% break %}{% endif %}{% endfor %}",
    "not there": "{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ messages[0].name }}{{ dict(a=1) }}",
    "tokens as text": "{{ '<b>&' + messages[0].content | upper }}{{ strftime_now('%Y') }}",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_chat_is_written_as_transformers_writes_it(name, families):
    tokenizer = families["byte_bpe"]
    tokenizer.chat_template = WRITTEN[name]
    dialogues = [each["messages"] for each in rows(5, 1)]
    expected = [
        tokenizer.apply_chat_template(each, add_generation_prompt=True, return_dict=False)
        for each in dialogues
    ]
    assert [ids.tolist() for ids in encode_prompts(dialogues, tokenizer)] == expected
    tokenizer.chat_template = None


ENDS = {
    "its own": ("{{ eos_token }}", "</s>", None),
    "another": ("<|end|>\n", ["</s>", "<|end|>"], "the model stops at '<|end|>', too"),
    "none": ("\n", "</s>", "the model will not learn to stop"),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_model_stops_where_its_template_ends_answers(case, bases):
    """Its own end is often none of the checkpoint's (LlamaFactory#7454), or not learned (trl#5988)."""
    end, expected, said = ENDS[case]
    tokenizer = AutoTokenizer.from_pretrained(bases / "decoder")
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|end|>", "<|assistant|>"]})
    tokenizer.chat_template = (
        "{% for message in messages %}{% if message.role == 'assistant' %}<|assistant|>{{ message.content }}"
        + end
        + "{% else %}{{ message.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    model = AutoModelForCausalLM.from_pretrained(bases / "decoder")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Chat(ChatRecipe("chat")).prepare_model(model, tokenizer)
    assert [said in str(each.message) for each in told] == [True] * bool(said)
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids(expected)


@pytest.mark.parametrize("special", [True, False])
def test_the_end_of_an_answer_is_not_read_out(special, bases):
    """Nor is it where the tokenizer does not count it among its special tokens."""
    tokenizer = AutoTokenizer.from_pretrained(bases / "decoder")
    tokenizer.add_tokens(["<|end|>"], special_tokens=special)
    model = AutoModelForCausalLM.from_pretrained(bases / "decoder")
    model.resize_token_embeddings(len(tokenizer))
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, len(tokenizer) - 1]
    said = iter(tokenizer("cat<|end|>", add_special_tokens=False)["input_ids"])

    def say(module, inputs, output):
        output.logits = torch.eye(len(tokenizer))[next(said)].expand_as(output.logits)

    model.register_forward_hook(say)
    (ids,) = answer(model, [torch.tensor([5, 6])], 8)
    assert read_out(tokenizer, [ids]) == ["cat"]


def test_packed_dialogues_have_the_losses_and_gradients_of_each_alone(recipe_on):
    prepared = prepare(find_inputs(recipe_on(rows(12, 0), rows(4, 1))))
    model, examples = prepared.pretrained.model.train(), prepared.splits["train"].examples
    objective = prepared.task.objective()
    assert isinstance(objective, ChatObjective)
    batch = objective.collate(pick(examples, np.arange(len(examples))), 0)
    packed = objective.losses(model, batch)["token"]
    packed.backward()
    gradients = {name: own.grad.clone() for name, own in model.named_parameters() if own.grad is not None}
    model.zero_grad()
    alone = []
    for index in range(len(examples)):
        ids = torch.from_numpy(examples[index]["input_ids"])[None]
        labels = torch.from_numpy(examples[index]["labels"])
        scores = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        targets = labels[1:] != IGNORE
        alone.append(-scores[targets, labels[1:][targets]].sum())
    torch.stack(alone).sum().backward()
    assert packed.item() == pytest.approx(torch.stack(alone).sum().item(), rel=1e-5)
    for name, own in model.named_parameters():
        if name in gradients:
            torch.testing.assert_close(gradients[name], own.grad, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        outputs = objective.outputs(model.eval(), batch)
    np.testing.assert_allclose(outputs.losses, torch.stack(alone).detach(), rtol=1e-4, atol=1e-5)
    assert int(outputs.counts.sum()) == int(objective.targets(batch)["token"])


def test_prompts_and_completions_are_dialogues_of_one_turn(recipe_on):
    pairs = [{"prompt": f"the {word}", "completion": word} for word in WORDS]
    dialogues = [
        {
            "messages": [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": row["completion"]},
            ]
        }
        for row in pairs
    ]
    fields = [
        prepare(find_inputs(recipe_on(own, own, task))).splits["train"].examples.fields
        for own, task in ((pairs, {"prompt": "prompt"}), (dialogues, {}))
    ]
    for name in fields[0]:
        assert fields[0][name].values.tolist() == fields[1][name].values.tolist()


def test_a_model_that_learned_answers_as_pipelines_ask_it(recipe_on, tmp_path):
    parrot = [{"messages": dialogue(random.Random(seed), 1)[-2:]} for seed in range(120)]
    for row in parrot:
        row["messages"][1]["content"] = "the dog ran"
    recipe = recipe_on(
        parrot[20:], parrot[:20], {"generate": True, "longest_answer": 8}, epochs=3, learning_rate=5e-3
    )
    folder = finetune(recipe)
    scores = json.loads((recipe.folder / "scores.json").read_text())
    best = scores["seeds"]["0"]["validation"]
    low, high = scores["interval"]
    assert low <= best["loss"] <= high
    assert (
        best["loss"]
        < scores["baselines"]["frequency of tokens"]["loss"]
        < scores["baselines"]["before this run"]["loss"]
    )
    assert best["exact_match"] > 0.5 > scores["baselines"]["before this run"]["exact_match"]
    report = (recipe.folder / "report.md").read_text()
    assert "frequency of tokens (predicting tokens by their frequency)" in report
    assert "majority class" not in report
    assert "bag of words" not in report
    predictions = [
        json.loads(line) for line in (recipe.folder / "predictions.jsonl").read_text().splitlines()
    ]
    total = sum(each["loss"] for each in predictions) / sum(each["tokens"] for each in predictions)
    assert total == pytest.approx(best["loss"], rel=1e-4)

    asked = [row["messages"][:-1] for row in parrot[:20]]
    chat = pipeline("text-generation", str(folder), max_new_tokens=8, do_sample=False)
    assert chat.tokenizer.chat_template == DEFAULT_TEMPLATE
    replies = [chat(messages)[0]["generated_text"][-1]["content"].strip() for messages in asked]
    assert replies == [each["text"] for each in predictions]
    source = write_rows(tmp_path / "asked.jsonl", [{"messages": messages} for messages in asked])
    predict_file(str(folder), str(source), str(tmp_path / "replies.jsonl"))
    written = [json.loads(line)["text"] for line in (tmp_path / "replies.jsonl").read_text().splitlines()]
    assert written == replies


def test_what_is_no_dialogue_is_refused(recipe_on, families):
    good = rows(8, 0)
    for messages, complaint in [
        ([{"role": "user", "content": "the cat"}], "no message of assistant that answers another one"),
        ([{"role": "user", "content": " "}], "which is no message with a role and a content"),
        ([{"from": "user", "value": "the cat"}], "which is no message with a role and a content"),
    ]:
        with pytest.raises(ValueError, match=rf"train.jsonl, line 9: row 9 has .*{complaint}"):
            prepare(find_inputs(recipe_on([*good, {"messages": messages}], good)))
    long = [{"role": "user", "content": "the cat " * 80}, {"role": "assistant", "content": "cat"}]
    with pytest.raises(ValueError, match="row 9 has no answer within 64 tokens: shorten it"):
        prepare(find_inputs(recipe_on([*good, {"messages": long}], good)))
    with pytest.raises(ValueError, match=r"needs generated answers: set generate=true"):
        recipe_on(good, good, {"metric_for_best_model": "rougeL"})
    tokenizer = families["byte_bpe"]
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(RowError, match=r"row 1 cannot be written by .* \(roles must alternate\): correct it"):
        encode_dialogues([good[0]["messages"]], tokenizer, 64)
    tokenizer.chat_template = None
    assert Chat.head == "ForCausalLM"
    assert tercet.TercetDecoderForCausalLM


def test_an_answer_does_not_depend_on_those_written_beside_it(recipe_on):
    """Nor on what prompts and answers are filled with: id 0, which is a text here, and counts as repeated."""
    prepared = prepare(
        find_inputs(recipe_on(rows(12, 0), rows(9, 1), {"generate": True, "longest_answer": 6}))
    )
    model, examples = prepared.pretrained.model.eval(), prepared.splits["validation"].examples
    objective = prepared.task.objective()
    assert isinstance(objective, ChatObjective)

    def answers(indices):
        batch = objective.collate(pick(examples, np.array(indices)), 0)
        return [ids.tolist() for ids in objective.write(model, batch)]

    for penalty in (1.0, 2.0):
        model.generation_config.repetition_penalty = penalty
        model.generation_config.eos_token_id = None
        written = answers(range(9))
        model.generation_config.eos_token_id = [written[0][2], written[1][1]]
        together = answers(range(9))
        assert together == [answers([index])[0] for index in range(9)]
        ends = model.generation_config.eos_token_id
        assert together == [
            ids[: min([ids.index(end) for end in ends if end in ids], default=None)] for ids in written
        ]


def build_chat(dialogues=None):
    return build_task(ChatRecipe("chat"), Dataset.from_list(dialogues or rows(4, 0)))


def test_what_messages_have_beside_role_and_content_is_told():
    """Such as weights of answers that are not to be learned (axolotl-ai-cloud/axolotl, pull request 1703)."""
    question, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    with pytest.warns(UserWarning, match=r"have 'weight' in 2, 'name' in 1, which is not read: role and"):
        build_chat([{"messages": [question | {"name": "x"}, answer | {"weight": 0}]},
                    {"messages": [question | {"name": None}, answer | {"weight": 1}]}])  # fmt: skip


def test_a_last_answer_that_does_not_fit_is_not_written(recipe_on):
    """It is not that of an earlier turn either, with which it would be compared."""
    long = [{"role": "user", "content": "the cat " * 20}, {"role": "assistant", "content": "cat"}]
    own = [{"messages": dialogue(random.Random(0), 1)}, {"messages": dialogue(random.Random(1), 1) + long}]
    with pytest.warns(UserWarning, match="1 of 2 dialogues have no room for their last answer within 64"):
        prepared = prepare(find_inputs(recipe_on(rows(8, 0), own, {"generate": True, "longest_answer": 6})))
    examples = prepared.splits["validation"].examples
    objective = prepared.task.objective()
    batch = objective.collate(pick(examples, np.arange(2)), 0)
    lengths = [len(ids) for ids in objective.write(prepared.pretrained.model.eval(), batch)]
    assert lengths[0] > 0
    assert lengths[1] == 0


def test_dialogues_whose_answer_lies_behind_the_cut_are_left_out(recipe_on, families):
    good = rows(8, 0)
    long = [{"role": "user", "content": "the cat " * 80}, {"role": "assistant", "content": "cat"}]
    recipe = recipe_on([*good[:3], {"messages": long}, *good[3:]], good)
    prepared = prepare(find_inputs(replace(recipe, data=replace(recipe.data, on_bad_row="skip"))))
    assert prepared.splits["train"].rows.to_list() == Dataset.from_list(good).to_list()
    assert prepared.bad_rows["train"]["left_out"] == {"has no answer within 64 tokens": 1}
