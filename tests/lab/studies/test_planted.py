"""Studies of what takes long to learn, in worlds where the result is planted: obeying the claim, and not."""

import math

import pytest
import torch

from lab.studies import blocks, interpretation, lessons, networks, sizes, training
from lab.studies.running import run_study
from lab.studies.study import find_study
from lab.studies.verdicts import judge_value, judged
from tercet.training.optimizers.schedules import CURVES


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        (lambda size, tokens: 1 + 9 * size**-0.35 + 40 * tokens**-0.5, "confirmed"),
        (lambda size, tokens: 4 * tokens**-0.1 * size**0.01, "refuted"),
        (lambda size, tokens: 3 - 0.9 * (tokens > 35_000) - 0.1 * (size > 20_000), "refuted"),
    ],
    ids=["falls", "larger-is-worse", "jumps"],
)
def test_scaling_finds_the_law_that_was_planted(monkeypatch, loss, verdict):
    def learn(model, draw, score, *, steps, **options):
        size = sum(each.numel() for each in model.get_submodule("model.layers").parameters())
        return [(0, 5.0), (steps, loss(size, 512 * steps))]

    monkeypatch.setattr(sizes, "learn", learn)
    study = find_study("scaling")
    found = run_study(study, seeds=2)
    assert judged(study, found) == verdict
    if verdict == "confirmed":
        values = found["values"]
        assert values["exponent of parameters above a floor (Hoffmann et al.: 0.34)"][0] == pytest.approx(
            0.35
        )
        assert values["exponent of text above a floor (Hoffmann et al.: 0.28)"][0] == pytest.approx(0.5)
        assert values["fitted floor of the loss, in nats for a character"][0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("transformer", "lstm", "verdict"),
    [((2.9, 2.0), (2.7, 2.2), "confirmed"), ((2.7, 2.0), (2.9, 2.2), "refuted")],
)
def test_data_hunger_is_a_crossing(monkeypatch, transformer, lstm, verdict):
    planted = iter([*zip(transformer, lstm, strict=True)] * 2)
    waiting: list[float] = []

    def learn(model, *given, **options):
        waiting.extend([] if waiting else next(planted))
        return [(0, 5.0), (1, waiting.pop(0)), (2, 4.0)]

    monkeypatch.setattr(networks, "learn", learn)
    study = find_study("data-hunger")
    found = run_study(study, seeds=2, amounts=(4_000, 8_000))
    assert judged(study, found) == verdict
    assert found["values"]["parameters of the LSTM over those of the Transformer"][0] == pytest.approx(
        1, abs=0.02
    )


def test_a_reader_without_memory_knows_one_character():
    torch.manual_seed(0)
    ids = torch.randint(128, (2, 9))
    other = ids.clone()
    other[:, 0] = (ids[:, 0] + 1) % 128
    for has_memory in (True, False):
        reader = networks.RecurrentReader(8, has_memory=has_memory)
        one, two = (reader(each, each).logits for each in (ids, other))
        assert torch.equal(one[:, 1:], two[:, 1:]) is not has_memory


@pytest.mark.parametrize(("sign", "verdict"), [(1, "confirmed"), (-1, "refuted")])
def test_a_schedule_is_judged_where_its_rate_ends(monkeypatch, sign, verdict):
    """Where the loss is the better the lower the last rate is, the cosine wins, which has come to its end."""

    def learn(model, draw, score, *, steps, points, schedule, **options):
        factor = CURVES[schedule.kind](schedule, schedule.warmup_updates(steps), steps, 1)
        places = range(steps // points, steps + 1, steps // points)
        return [(step, 2 + sign * factor(step)) for step in places]

    monkeypatch.setattr(training, "learn", learn)
    study = find_study("noam-and-cosine")
    assert judged(study, run_study(study, seeds=2)) == verdict


@pytest.mark.parametrize(("sure", "verdict"), [(0.0, "confirmed"), (0.1, "refuted")])
def test_calibration_and_perplexity_are_told_apart(monkeypatch, sure, verdict):
    """A world in which smoothing raises the loss and cures, or causes, too much confidence."""

    def learn(model, draw, score, **options):
        mass = draw(torch.Generator().manual_seed(0))["label_smoothing"]
        logits = torch.zeros(128)
        logits[ord(" ")] = 9.0 if mass == sure else 0.0  # certain of blanks, or of nothing

        def forward(input_ids):
            return type("Outputs", (), {"logits": logits.expand(*input_ids.shape, 128)})

        model.forward = forward
        return [(0, 5.0), (1, 2.1 if mass else 2.0)]

    monkeypatch.setattr(training, "learn", learn)
    study = find_study("smoothed-calibration")
    found = run_study(study, seeds=2)
    perplexity, calibration = (
        [values[0] for name, values in found["values"].items() if name.startswith(word)]
        for word in ("perplexity", "calibration")
    )
    assert perplexity == pytest.approx([math.exp(0.1)] * 2)
    assert [value < 0 for value in calibration] == [verdict == "confirmed"] * 2
    wanted = [judge_value(found["values"][name], study.expected[name]) for name in study.expected]
    assert wanted[4:] == [verdict] * 2


def test_a_decoder_reads_the_layers_that_are_chosen():
    torch.manual_seed(0)
    model = lessons.seq2seq(position_embedding_type="rotary").eval()
    batch = lessons.strings((5, 5), 4)(torch.Generator().manual_seed(0))
    other = batch | {"input_ids": batch["input_ids"].flip(0)}
    norm = model.get_submodule("model.encoder.norm")
    with torch.no_grad():
        whole = model(**batch).logits
        blocks.with_source(model, lambda states: [norm(states[-1])] * 2)
        assert torch.equal(model(**batch).logits, whole)
        blocks.with_source(model, lambda states: [0 * each for each in states])
        assert torch.equal(model(**batch).logits, model(**other).logits)


def test_the_answer_of_a_repetition_stands_where_maps_are_read():
    batch = interpretation.repetitions(torch.Generator().manual_seed(0), 9)
    ids, places = batch["input_ids"], torch.arange(10, 17)
    assert torch.equal(ids[:, places + 1], ids[:, places - 8])
    assert (batch["labels"][:, :10] == interpretation.IGNORE).all()
    assert torch.equal(batch["labels"][:, 10:], ids[:, 10:])


def test_it_stands_for_the_noun_that_the_last_word_suits():
    batch = interpretation.animals(torch.Generator().manual_seed(0), 200)
    words = [[interpretation.WORDS[idx] for idx in row] for row in batch["input_ids"].tolist()]
    answers = [interpretation.WORDS[idx] for idx in batch["labels"][:, interpretation.IT].tolist()]
    is_wide = [row[-1] in interpretation.STATES[1] for row in words]
    assert is_wide == [answer in interpretation.NOUNS[1] for answer in answers]
    assert all(
        answer in (row[-8], row[-5]) and row[-3] == "it" for row, answer in zip(words, answers, strict=True)
    )
    assert 60 < sum(answer == row[-5] for row, answer in zip(words, answers, strict=True)) < 140
    sentences = interpretation.pairs(20, torch.Generator().manual_seed(1))
    assert (sentences[:, 0, :-1] == sentences[:, 1, :-1]).all()
    for pair in sentences.tolist():
        for row, place in zip(pair, interpretation.NOUN_PLACES, strict=True):
            noun, state = interpretation.WORDS[row[place]], interpretation.WORDS[row[-1]]
            assert (noun in interpretation.NOUNS[1]) == (state in interpretation.STATES[1])


def test_a_head_that_looks_at_the_noun_is_told_from_one_that_looks_at_the_nearer(monkeypatch):
    sentences = interpretation.pairs(20, torch.Generator().manual_seed(1))
    size = sentences.shape[-1]
    maps = torch.zeros(40, 3, size, size)
    maps[::2, 0, interpretation.IT, -8] = maps[1::2, 0, interpretation.IT, -5] = 1
    maps[:, 1, interpretation.IT, -5] = 1
    monkeypatch.setattr(interpretation, "attention_maps", lambda model, inputs: {"self": [maps]})
    found = interpretation.finds_noun(lessons.encoder(), sentences)
    assert found.mean(dim=(2, 3)).tolist() == [[1.0, 0.5, 0.5]]
    assert interpretation.chosen_on_others(found) == 1
    assert 0.6 < interpretation.best_by_chance(found) < 0.7
