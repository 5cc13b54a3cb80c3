"""How answers are compared and judged: by hand, and against other people's definitions."""

import unicodedata

import numpy as np
import pytest
import sacrebleu

from tercet.fewshot.contamination import compare, words_in
from tercet.fewshot.evaluation import Condition, Outcome
from tercet.fewshot.prompts.boundary import Prompt
from tercet.fewshot.prompts.items import Item
from tercet.fewshot.prompts.request import Request, Score
from tercet.fewshot.scoring.prefix_tree import by_size, common_length
from tercet.fewshot.tasks.choices import MinimalPairRecipe
from tercet.fewshot.tasks.comparison import normalized, probabilities
from tercet.fewshot.tasks.texts import CompletionRecipe, GenerationRecipe, record_written, rolling
from tercet.reports.fewshot.summary import doubt_of, drawn_scores, gain_of, score_of_part
from tercet.training.metrics.bootstrap import percentile_interval


def score(*values):
    return Score(values, False)


def test_answers_are_compared_in_five_ways():
    scores = [score(-1.0, -2.0), score(-2.0)]
    alone = [score(-1.0, -1.0), score(-3.0)]
    values = normalized(
        scores, [" abcd", " a"], alone, [[score(-1.0), score(-3.0)], [score(0.0), score(-9.0)]]
    )
    assert values["none"].tolist() == [-3, -2]
    assert values["token"].tolist() == [-1.5, -2]
    assert values["char"].tolist() == [-0.75, -2]
    assert values["pmi"].tolist() == [-1, 1]
    without = (probabilities(np.array([-1.0, -3.0])) + probabilities(np.array([0.0, -9.0]))) / 2
    expected = probabilities(np.array([-3.0, -2.0])) / without
    assert probabilities(values["calibrated"]) == pytest.approx(expected / expected.sum())


def test_calibration_takes_away_what_a_prompt_prefers():
    """A model that says the same of every row, content or none, has no choice left (Zhao et al., 2021)."""
    scores = [score(-0.1), score(-4.0)]
    values = normalized(scores, [" a", " b"], None, [scores, scores])
    assert probabilities(values["calibrated"]) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("written", "right", "exact", "squad", "f1"),
    [
        (" cat\n", ["cat"], 1, 1, 1),
        ("dog", ["cat", " dog "], 1, 1, 1),
        ("The cat.", ["cat"], 0, 1, 1),
        ("the cat ran", ["cat"], 0, 0, 2 / 3),
        ("12", ["-12"], 0, 1, 1),
        ("35", ["3.5"], 0, 1, 1),
        (" the", ["A"], 0, 0, 0),
        ("!", ["?"], 0, 0, 0),
        ("", ["..."], 0, 0, 0),
        (" A", ["A"], 1, 1, 1),
        ("", ["cat"], 0, 0, 0),
    ],
)
def test_exact_match_compares_texts_and_the_form_of_squad_has_its_own_name(written, right, exact, squad, f1):
    record = record_written(Item(0, (), references=tuple(right)), written)
    names = ("exact_match", "squad_exact_match", "f1")
    assert [record[name] for name in names] == pytest.approx([exact, squad, f1])
    for name, value in zip(names, (exact, squad, f1), strict=True):
        task = GenerationRecipe(kind="generation", context="", answers="", metric=name).build()
        assert task.scores([record])[name] == pytest.approx(value)
        assert percentile_interval(drawn_scores(task, [[record]])) == pytest.approx((value, value))


def test_bleu_counts_each_of_several_correct_answers_as_sacrebleu_does():
    answers = [("no.", "the big dog sees the tree house ."), ("a cat sat on the old mat .",)]
    items = [Item(number, (), references=each) for number, each in enumerate(answers)]
    texts = ["the big dog sees the tree house .", "a cat sat on a mat ."]
    task = GenerationRecipe(kind="generation", context="", answers="", metric="bleu").build()
    records = [record_written(item, text) for item, text in zip(items, texts, strict=True)]
    streams = [["no.", answers[1][0]], [answers[0][1], None]]
    expected = sacrebleu.corpus_bleu(texts, streams).score
    assert task.scores(records)["bleu"] == task.metric_of_rows(records)(np.arange(2)) == expected
    assert task.metric_of_rows(records)(np.array([0])) == pytest.approx(100)


def test_bleu_and_its_interval_are_means_over_conditions_and_parts_have_the_same_score():
    task = GenerationRecipe(kind="generation", context="", answers="", metric="bleu").build()
    references = [f"the {animal} sat under the big tree {n}" for n, animal in enumerate(["cat", "dog"] * 6)]
    good, bad = references, ["no"] * 12
    outcomes = [
        Outcome(
            Condition(0, seed, 0),
            [record_written(Item(n, (), references=(text,)), own[n]) for n, text in enumerate(references)],
            0,
            0,
            "",
        )
        for seed, own in enumerate([bad, good])
    ]
    low, high = percentile_interval(drawn_scores(task, [outcome.records for outcome in outcomes]))
    assert low == pytest.approx(high) == pytest.approx(50)
    mask = np.arange(12) < 5
    assert score_of_part(task, outcomes, mask) == pytest.approx(50)
    assert score_of_part(task, outcomes, ~mask | mask) == pytest.approx(
        np.mean([task.scores(outcome.records)["bleu"] for outcome in outcomes])
    )
    assert score_of_part(task, outcomes, np.zeros(12, dtype=bool)) is None


def test_intervals_draw_rows_of_which_some_conditions_know_nothing():
    """A mean over conditions, each over the drawn rows that it has; against the definition, draw by draw."""
    task = CompletionRecipe(kind="completion", context="", answer="").build()
    rng = np.random.default_rng(0)
    hits, counts = rng.random((3, 40)) < 0.6, rng.random((3, 40)) < 0.7
    counts[:, 5] = False
    records = [
        [{"is_right": bool(hit)} if count else None for hit, count in zip(*own, strict=True)]
        for own in zip(hits, counts, strict=True)
    ]
    rows = [row for row in range(40) if counts[:, row].any()]
    draws, means = np.random.default_rng(0), []
    for _ in range(1000):
        drawn = [rows[place] for place in draws.integers(len(rows), size=len(rows))]
        parts = [[own[row]["is_right"] for row in drawn if own[row] is not None] for own in records]
        means.append(np.mean([np.mean(part) for part in parts if part]))
    assert percentile_interval(drawn_scores(task, records)) == pytest.approx(
        tuple(np.quantile(means, [0.025, 0.975]))
    )


def outcome_of(num_fewshot, hits):
    """Records of rows that are right, wrong, or have no demonstration (None)."""
    records = [None if hit is None else {"is_right": hit} for hit in hits]
    return Outcome(Condition(num_fewshot, 0, 0), records, 0, 0, "")


def test_the_most_frequent_answer_is_as_uncertain_as_the_model():
    """Where a model always gives that answer, there is no difference, whichever rows are drawn."""
    task = CompletionRecipe(kind="completion", context="", answer="").build()
    answers = ["yes"] * 24 + ["no"] * 16
    baselines = task.baselines([Item(n, (Prompt("", (text,)),)) for n, text in enumerate(answers)])
    found = doubt_of(task, [outcome_of(0, [text == "yes" for text in answers]).records], baselines)
    assert (found["rows"], found["baselines"]) == (40, {"majority": 0.6})
    assert found["interval"][0] < 0.6 < found["interval"][1]
    assert found["differences"] == {"majority": [0.0, 0.0]}
    shown = [None] * 30 + [text == "no" for text in answers[30:]]
    found = doubt_of(task, [outcome_of(4, shown).records], baselines)
    assert (found["rows"], found["baselines"], found["interval"]) == (10, {"majority": 0.0}, [1.0, 1.0])
    found = doubt_of(task, [outcome_of(4, [None, *shown[:-1]]).records], baselines)
    assert (found["rows"], found["interval"]) == (9, None)


def test_a_random_answer_is_exact_if_all_rows_have_as_many():
    task = MinimalPairRecipe(kind="minimal_pair", good="", bad="").build()
    items = [Item(n, (Prompt("", ("a", "b", "c")),)) for n in range(20)]
    records = [{"is_right": {task.normalization: n < 15}} for n in range(20)]
    found = doubt_of(task, [records], {"random": task.baselines(items)["random"]})
    assert (found["baselines"]["random"], found["differences"]) == (pytest.approx(1 / 3), {})


def test_a_gain_is_that_on_the_rows_of_both():
    task = CompletionRecipe(kind="completion", context="", answer="").build()
    without = outcome_of(0, [True] * 30 + [False] * 20)
    fitting = outcome_of(4, [None] * 20 + [True] * 30)
    gain = gain_of(task, [fitting], [without])
    assert gain is not None
    assert (gain["rows"], gain["mean"], gain["without"]) == (30, 1.0, pytest.approx(1 / 3))
    low, high = gain["interval"]
    assert 0 < low < 2 / 3 < high
    few = outcome_of(4, [None] * 41 + [True] * 9)
    assert gain_of(task, [few], [without]) is None


def test_contamination_is_a_common_run_of_words():
    text = "one two three four five six seven eight nine ten"
    documents = [
        "ONE, two three: four -- five six seven!",
        "zero " + text.replace("five", "5"),
        "",
        text[4:] + " x",
    ]
    for words, expected in ((7, True), (9, True), (10, False)):
        found = compare([text, "a b c d e f g h i j", "too short"], documents, words)
        assert found.is_touched == [expected, False, False]
        assert found.num_short == 1
    assert compare([text], documents[:2], 7).is_touched == [True]
    assert compare([text], documents[:2], 8).is_touched == [False]


@pytest.mark.parametrize(("lengths", "expected"), [([3, 40], 8), ([10] * 9 + [40], 10), ([50, 60], 13)])
def test_runs_are_as_long_as_short_items_allow(lengths, expected):
    texts = [" ".join(f"w{number}" for number in range(length)) for length in lengths]
    assert compare(texts, [""]).words == expected


def test_contamination_knows_scripts_without_spaces():
    text = "今天天气很好我们去公园散步吧"
    assert compare([text], [f"他说, {text}。"], 8).is_touched == [True]
    assert compare([text], ["今天天气不好我们不去公园散步"], 8).is_touched == [False]


def test_items_are_found_whichever_unicode_form_they_have():
    """And words of Hindi are whole, whose vowels are marks."""
    text = "le café est fermé à midi, dit le gérant du café"
    assert compare([text], [unicodedata.normalize("NFD", text)], 8).is_touched == [True]
    assert words_in("नमस्ते दुनिया") == ["नमस्ते", "दुनिया"]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 20, 24])
def test_rolling_windows_score_every_token_once(length):
    request = Request((99,), tuple(range(length)))
    windows = list(rolling(request, 8))
    assert tuple(token for window in windows for token in window.answer) == request.answer
    for window in windows:
        assert len(window.context) + len(window.answer) - 1 <= 8
        assert len(window.context) >= 1
    whole = (99, *range(length))
    for window in windows[1:]:
        begin = whole.index(window.answer[0])
        assert whole[begin - len(window.context) : begin] == window.context


def test_batches_keep_to_their_budget_and_lose_nothing():
    sizes = [5, 1, 9, 9, 3, 30]
    batches = by_size(sizes, 20)
    assert sorted(number for batch in batches for number in batch) == list(range(6))
    assert all(len(batch) == 1 or len(batch) * max(sizes[n] for n in batch) <= 20 for batch in batches)
    for one, other in [
        ((1, 2, 3), (1, 2, 4)),
        ((), (1,)),
        ((1,), (1,)),
        (tuple(range(99)), tuple(range(98))),
    ]:
        pairs = zip(one, other, strict=False)
        expected = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
        assert common_length(one, other) == expected
