"""TRL trains our decoder: its losses and steps are those of a plain computation on the same texts."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.optim import SGD
from torch.testing import assert_close

from tercet.data.steps.examples import pick
from tercet.finetune.encoding import TextEncoder
from tercet.finetune.tasks.chat import Chat, ChatRecipe

pytest.importorskip("trl", reason="TRL is not installed")
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from .conftest import PLAIN_TRAINING

STANDARD = PLAIN_TRAINING | {"max_steps": 1, "bf16": False}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def log_probabilities(model, ids, start):
    """Log-probability of each token from `start` on, in one text alone."""
    scores = model(ids).logits[:, start - 1 : -1].log_softmax(-1)
    return scores.gather(-1, ids[:, start:, None])[0, :, 0]


def step_plainly(model, loss):
    """Take one step along a loss's gradient, no longer than 1."""
    optimizer = SGD(model.parameters(), lr=0.5)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


LAYOUTS = {
    "padded": {},
    "accumulated": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2},
    "padding-free": {"padding_free": True, "max_length": None},
    "packed": {"packing": True, "max_length": 32, "per_device_train_batch_size": 8},
    "checkpointed": {"gradient_checkpointing": True},
}


@pytest.mark.ecosystem("trl", "`SFTTrainer`, padded, packed and padding-free", member="decoder")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_supervised_finetuning_steps_as_a_plain_loop(layout, build, writer, texts, tmp_path):
    model, expected = build("decoder"), build("decoder").train()
    options = {"per_device_train_batch_size": 4, "gradient_checkpointing": False}
    arguments = SFTConfig(output_dir=str(tmp_path), **STANDARD | options | LAYOUTS[layout])
    data = Dataset.from_dict({"text": texts})
    trainer = SFTTrainer(model, args=arguments, train_dataset=data, processing_class=writer)
    trainer.train()

    rows = [torch.tensor([[*ids, writer.eos_token_id]]) for ids in writer(texts)["input_ids"]]
    loss = -torch.cat([log_probabilities(expected, row, 1) for row in rows]).mean()
    step_plainly(expected, loss)
    assert trainer.state.log_history[0]["loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert_close(dict(model.named_parameters()), dict(expected.named_parameters()), **CLOSE)


@pytest.mark.ecosystem("trl", "`SFTTrainer` on completions only", member="decoder")
def test_prompts_are_no_targets(build, writer, tmp_path):
    model = build("decoder")
    data = {"prompt": ["she saw", "in the cold night the"], "completion": [" a white bird .", " old king"]}
    arguments = SFTConfig(output_dir=str(tmp_path), **STANDARD, gradient_checkpointing=False)
    trainer = SFTTrainer(
        model, args=arguments, train_dataset=Dataset.from_dict(data), processing_class=writer
    )
    trainer.train()
    scores = []
    for prompt, completion in zip(data["prompt"], data["completion"], strict=True):
        ids = writer(prompt + completion)["input_ids"] + [writer.eos_token_id]
        start = len(writer(prompt)["input_ids"])
        scores.append(log_probabilities(build("decoder"), torch.tensor([ids]), start))
    assert trainer.state.log_history[0]["loss"] == pytest.approx(-torch.cat(scores).mean().item(), rel=1e-4)


@pytest.mark.ecosystem("trl", "`DPOTrainer`", member="decoder")
def test_preferences_are_weighed_by_their_definition(build, writer, tmp_path):
    model, reference = build("decoder"), build("decoder", initializer_range=0.2)
    data = {"prompt": ["she saw"], "chosen": [" a white bird ."], "rejected": [" snow"]}
    arguments = DPOConfig(output_dir=str(tmp_path), **STANDARD, gradient_checkpointing=False, beta=0.1)
    trainer = DPOTrainer(
        model, reference, arguments, train_dataset=Dataset.from_dict(data), processing_class=writer
    )
    trainer.train()
    start = len(writer(data["prompt"][0])["input_ids"])
    ratios = []
    for kind in ("chosen", "rejected"):
        ids = torch.tensor([writer(data["prompt"][0] + data[kind][0])["input_ids"] + [writer.eos_token_id]])
        ours, theirs = (log_probabilities(each, ids, start).sum() for each in (build("decoder"), reference))
        ratios.append(ours - theirs)
    expected = -torch.nn.functional.logsigmoid(0.1 * (ratios[0] - ratios[1]))
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected.item(), rel=1e-3)


def test_chat_has_the_loss_of_the_trainer(build, writer, tmp_path):
    texts = [
        ("she saw", "a white bird"),
        ("in the cold night the", "old king"),
        ("the old king", "saw a bird"),
    ]
    dialogues = [
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        * (1 + (answer == "old king"))
        for prompt, answer in texts
    ]
    model = build("decoder")
    recipe = ChatRecipe(kind="chat")
    rows = Dataset.from_dict({"messages": dialogues})
    task = Chat(recipe, Chat(recipe).find(rows))
    task.prepare_tokenizer(writer)
    examples = task.examples(rows, TextEncoder(writer, 64, has_token_types=False))
    objective = task.objective()
    batch = objective.collate(pick(examples, np.arange(3)), 0)
    loss = objective.losses(model.train(), batch)["token"] / objective.targets(batch)["token"]

    arguments = SFTConfig(
        output_dir=str(tmp_path),
        **STANDARD,
        gradient_checkpointing=False,
        assistant_only_loss=True,
        per_device_train_batch_size=3,
    )
    trainer = SFTTrainer(build("decoder"), args=arguments, train_dataset=rows, processing_class=writer)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
