"""Pairs of texts are learned with teacher forcing, and predictions are what `generate` writes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import normalizers
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from tercet import (
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.data.steps.objective import IGNORE
from tercet.finetune.encoding import TextEncoder
from tercet.finetune.evaluation import evaluate_rows
from tercet.finetune.frames import end_texts
from tercet.finetune.model import freeze
from tercet.finetune.prediction import predict
from tercet.finetune.splits import encoder_of
from tercet.finetune.tasks.generation import Generation, GenerationRecipe
from tercet.finetune.tasks.task import Task, build_task
from tercet.pretraining.objectives.translation import Translation
from tercet.reports.finetune.summary import bootstrap
from tercet.training.metrics.bootstrap import bootstrap_interval, percentile_interval
from tercet.training.metrics.texts import text_scores

from ..word_level import word_level
from .conftest import sums_of_step

PAD, BEGIN, END = 0, 2, 3
WORDS = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
FRAMES = {"none": None, "end": "$A </s>", "both": "<s> $A </s>"}


def make_tokenizer(frame: str = "end", **roles: Any) -> PreTrainedTokenizerFast:
    names = ["<pad>", "<unk>", "<s>", "</s>", "to:", *WORDS]
    known = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>"}
    return word_level(names, split=WhitespaceSplit(), template=FRAMES[frame], **(known | roles))


def make_model(**changes: Any) -> TercetSeq2SeqForConditionalGeneration:
    torch.manual_seed(0)
    config = TercetSeq2SeqConfig(
        vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=24, pad_token_id=PAD, bos_token_id=BEGIN, eos_token_id=END,
        decoder_start_token_id=PAD, **changes,
    )  # fmt: skip
    return TercetSeq2SeqForConditionalGeneration(config).eval()


def make_task(rows: Dataset, **changes: Any) -> Generation:
    task = build_task(GenerationRecipe(**({"kind": "generation", "longest_target": 8} | changes)), rows)
    assert isinstance(task, Generation)
    return task


@pytest.fixture
def model() -> TercetSeq2SeqForConditionalGeneration:
    return make_model()


@pytest.fixture
def encoder(model) -> TextEncoder:
    return encoder_of(model, make_tokenizer(), None)


def draw(num_rows: int, seed: int = 0) -> Dataset:
    """Draw sources of 1 to 9 words; targets are their first words, backwards."""
    rng = np.random.default_rng(seed)
    sources = [list(rng.choice(WORDS, rng.integers(1, 10))) for _ in range(num_rows)]
    return Dataset.from_dict(
        {"source": [*map(" ".join, sources)], "target": [" ".join(words[4::-1]) for words in sources]}
    )


def slow_loss(model: torch.nn.Module, sources: list[list[int]], targets: list[list[int]]) -> Tensor:
    """Sum the loss of padded targets, whose decoder inputs the model makes itself."""

    def padded(rows: list[list[int]], filler: int) -> Tensor:
        width = max(map(len, rows))
        return torch.tensor([row + [filler] * (width - len(row)) for row in rows])

    ids, labels = padded(sources, PAD), padded(targets, IGNORE)
    mask = torch.tensor([[1] * len(row) + [0] * (ids.shape[1] - len(row)) for row in sources])
    return model(input_ids=ids, attention_mask=mask, labels=labels, reduction="sum").loss


@pytest.mark.parametrize("frame", FRAMES)
def test_the_loss_is_that_of_padded_texts_in_their_frames(model, frame):
    rows = draw(6)
    task = make_task(rows, prefix="to: ")
    tokenizer = make_tokenizer(frame)
    task.prepare_tokenizer(tokenizer)
    examples = task.examples(rows, encoder_of(model, tokenizer, None))
    objective = task.objective()
    batch = objective.collate(examples.pack(np.arange(6)), 0)
    begin, names = [BEGIN] * (frame == "both"), make_tokenizer("none").get_vocab()
    sources, targets = (
        [[*begin, *(names[word] for word in (prefix + text).split()), END] for text in rows[column]]
        for column, prefix in (("source", "to: "), ("target", ""))
    )
    expected = slow_loss(model, sources, targets)
    torch.testing.assert_close(objective.losses(model, batch)["token"], expected)
    assert int(objective.targets(batch)["token"]) == sum(map(len, targets))
    assert examples.lengths.tolist() == [*map(len, map(list.__add__, sources, targets))]


def test_batches_are_those_of_translation(encoder):
    rows = draw(5)
    task = make_task(rows)
    examples = task.examples(rows, encoder).pack(np.arange(5))
    found = task.objective().collate(examples, 0)
    expected = Translation(PAD).collate(examples, 0)
    assert found.pop("index").tolist() == [0, 1, 2, 3, 4]
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(value)), name


def test_micro_batches_of_all_processes_add_up(model, encoder):
    rows = draw(24)
    task = make_task(rows)
    step = model, task.objective(), task.examples(rows, encoder)
    loss, targets, _ = sums_of_step(*step, limit=100_000)
    for num_processes in (1, 2):
        found = sums_of_step(*step, limit=30, num_processes=num_processes)
        assert found[:2] == pytest.approx((loss, targets))
        assert found[2] > num_processes


@pytest.mark.parametrize("num_beams", [1, 3])
def test_predictions_are_what_generate_writes_row_by_row(encoder, num_beams):
    model = make_model(initializer_range=0.5).eval()  # a model of small weights repeats itself
    rows, tokenizer = draw(16), encoder.tokenizer
    task = make_task(rows, num_beams=num_beams)
    task.prepare_model(model, tokenizer)
    expected = []
    for text in rows["source"]:
        written = model.generate(
            torch.tensor(tokenizer(text)["input_ids"])[None],
            num_beams=num_beams,
            max_new_tokens=8,
            do_sample=False,
        )
        expected.append(tokenizer.decode(written[0], skip_special_tokens=True))
    assert len(set(expected)) > 10
    judged = evaluate_rows(model, task, rows, task.examples(rows, encoder), tokens_at_once=200)
    assert judged.predictions == [{"text": text} for text in expected]
    scores = text_scores(expected, rows["target"])
    assert judged.scores == scores | {"loss": judged.scores["loss"]}
    assert set(judged.scores) == set(task.metrics)
    assert judged.scores["loss"] > 0
    assert predict(model, task, rows.select_columns("source"), encoder) == judged.predictions


def test_pairs_can_be_learned_by_heart(encoder):
    rows = draw(8)
    task, model = make_task(rows), make_model().train()
    examples, objective = task.examples(rows, encoder), task.objective()
    batch = objective.collate(examples.pack(np.arange(8)), 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        (objective.losses(model, batch)["token"] / objective.targets(batch)["token"]).backward()
        optimizer.step()
    scores = evaluate_rows(model.eval(), task, rows, examples).scores
    assert scores["exact_match"] == 1
    assert scores["loss"] < 0.1


def test_long_texts_are_cut_and_still_end():
    for frame, texts, longest in (
        ("none", ["a b c </s>", "a </s>"], 6),
        ("both", ["<s> a b </s>", "<s> a </s>"], 7),
    ):
        tokenizer = make_tokenizer(frame)
        end_texts(tokenizer)
        encoder = TextEncoder(tokenizer, 24, has_token_types=False)
        message = f"1 of 2 texts are longer than 4 tokens, the longest has {longest}"
        with pytest.warns(UserWarning, match=message):
            ids = encoder.encode_targets(["a b c d e", "a"], 4)
        assert [tokenizer.decode(row) for row in ids] == texts


@pytest.mark.parametrize(("column", "text"), [("source", " "), ("target", ""), ("target", None)])
def test_a_row_without_text_is_named(encoder, column, text):
    rows = draw(4)
    task, values = make_task(rows), rows.to_dict()
    values[column][2] = text
    with pytest.raises(ValueError, match=rf"^row 3 has no text in column '{column}' \(.*\): take it out"):
        task.examples(Dataset.from_dict(values), encoder)


def test_targets_that_are_all_the_same_are_refused():
    rows = Dataset.from_dict({"source": ["a", "b"], "target": ["c", "c"]})
    with pytest.raises(ValueError, match=r"all rows have the same text in column 'target'"):
        make_task(rows)


def test_a_target_longer_than_what_the_model_reads_is_refused(encoder):
    rows = draw(4)
    with pytest.raises(ValueError, match=r"task.longest_target is 25, but a text may have 24 tokens: lower"):
        make_task(rows, longest_target=25).examples(rows, encoder)


def test_a_model_or_a_tokenizer_that_lacks_a_token_is_refused(model):
    rows = draw(4)
    with pytest.raises(ValueError, match=r"names no decoder_start_token_id: set model\.overrides"):
        make_task(rows).examples(rows, TextEncoder(make_tokenizer(), 24, has_token_types=False))
    with pytest.raises(ValueError, match=r"generation needs the tokenizer's eos_token"):
        make_task(rows).prepare_tokenizer(make_tokenizer(eos_token=None))


def test_a_head_without_weights_of_its_own_cannot_learn_alone():
    with pytest.raises(
        ValueError, match=r"frozen_layers is -1, but TercetSeq2SeqFor.* has no head with trainable weights"
    ):
        freeze(make_model(tie_word_embeddings=True), -1)


def test_a_tokenizer_that_writes_lower_case_is_scored_without_case():
    rows = Dataset.from_dict({"source": ["a", "b"], "target": ["Zwei Hunde rennen.", "Ein Mann sieht sie."]})
    task = make_task(rows, metric_for_best_model="exact_match")
    task.tokenizer = make_tokenizer()
    predictions = [{"text": text.lower()} for text in rows["target"]]
    assert task.score(predictions, task.references(rows))["exact_match"] == 0
    task.tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    scores = task.score(predictions, task.references(rows))
    assert (scores["exact_match"], scores["bleu"], scores["chrf"]) == (1, pytest.approx(100), 100)
    assert task.score_of_rows(predictions, task.references(rows))(np.arange(2)) == 1


def test_bleu_cuts_chinese_targets_into_characters():
    rows = Dataset.from_dict({"source": ["a", "b"], "target": ["一只狗在草地上跑。", "两个孩子在雪地里玩。"]})
    task, found = make_task(rows), ["一只狗在草地上走。", "两个孩子在雪地里玩。"]
    task.tokenizer = make_tokenizer()
    predictions = [{"text": text} for text in found]
    scores = task.score(predictions, task.references(rows))
    assert scores == text_scores(found, rows["target"], "zh")
    assert scores["bleu"] > 50


def test_reports_know_how_wrong_a_text_is():
    rows = Dataset.from_dict({"source": ["x", "y", "z"], "target": ["a b", "c d", "e f"]})
    task, references = make_task(rows), rows["target"]
    task.tokenizer = make_tokenizer()
    predictions = [{"text": text} for text in ("a b", "c x", "x y")]
    assert task.error(predictions, references).tolist() == [0, 0.5, 1]
    assert (task.format_prediction(predictions[1]), task.format_reference(references[1])) == ("c x", "c d")
    slowly = bootstrap_interval(Task.score_of_rows(task, predictions, references), len(predictions))
    assert percentile_interval(bootstrap(task, predictions, references)) == pytest.approx(slowly)


def test_the_guess_is_the_first_sentence():
    rows = Dataset.from_dict(
        {"source": [" Dr. Who won. He left.", "One sentence"], "target": ["Who won.", "Ein Satz"]}
    )
    guesses = make_task(rows).guess(rows, rows)
    assert [guess["text"] for guess in guesses] == ["Dr. Who won.", "One sentence"]


def test_the_ceiling_is_what_the_references_score_as_the_tokenizer_writes_them(families):
    """WordPiece sets spaces around punctuation: with all tokens right, no text is the reference."""
    rows = Dataset.from_dict({"source": ["a", "b"], "target": ["the old house, and", "its doors; windows."]})
    task = make_task(rows)
    task.tokenizer = families["wordpiece"]
    ids = task.tokenizer(list(rows["target"]), add_special_tokens=False)["input_ids"]
    written = [{"text": text} for text in task.tokenizer.batch_decode(ids)]
    most = task.ceiling(task.references(rows))
    assert most == task.score(written, task.references(rows))
    assert most["exact_match"] < 1
    task.tokenizer = families["byte_bpe"]
    assert task.ceiling(task.references(rows)) == {}
    task.recipe = replace(task.recipe, longest_target=2)
    cut = [{"text": task.tokenizer.decode(task.tokenizer(text)["input_ids"][:2])} for text in rows["target"]]
    assert task.ceiling(task.references(rows)) == task.score(cut, task.references(rows))
