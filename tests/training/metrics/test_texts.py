"""Scores of written texts are those of sacrebleu and rouge_score, in every script."""

from functools import cache

import numpy as np
import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from tercet.training.metrics.bootstrap import bootstrap_interval
from tercet.training.metrics.texts import (
    LettersOfEveryScript,
    rouge,
    score_of_rows,
    text_scores,
    tokenization_for,
)

WORDS = ["the", "cat", "sat", "on", "a", "Mat", "mat.", "3,5", "it's", "snake_case", "-", "U.S."]


def draw(seed: int, num_texts: int = 30) -> tuple[list[str], list[str]]:
    """Draw texts and references that share some of their words."""
    rng = np.random.default_rng(seed)
    references = [" ".join(rng.choice(WORDS, size=rng.integers(1, 12))) for _ in range(num_texts)]
    found = [
        " ".join(word if rng.random() < 0.8 else str(rng.choice(WORDS)) for word in text.split())
        for text in references
    ]
    return found, references


def expected_scores(found: list[str], references: list[str]) -> dict[str, float]:
    """Ask the libraries."""
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    rouge_scores = [scorer.score(right, text) for text, right in zip(found, references, strict=True)]
    return {
        "bleu": sacrebleu.corpus_bleu(found, [references]).score,
        "chrf": sacrebleu.corpus_chrf(found, [references]).score,
        **{
            kind: float(np.mean([each[kind].fmeasure for each in rouge_scores]))
            for kind in scorer.rouge_types
        },
        "exact_match": float(np.mean([text == right for text, right in zip(found, references, strict=True)])),
    }


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_the_libraries(seed):
    found, references = draw(seed)
    scores = text_scores(found, references)
    assert scores == expected_scores(found, references)
    assert 0 < scores["exact_match"] < scores["rouge2"] < scores["rouge1"] < 1
    assert 0 < scores["bleu"] < 100


@pytest.mark.parametrize("found", [["", ""], ["x y", "z"], ["", "on the mat"], ["...", "!"]])
def test_scores_of_poor_texts_are_those_of_the_libraries(found):
    references = ["the cat sat", "on the mat"]
    assert text_scores(found, references) == expected_scores(found, references)


def test_equal_texts_score_full_marks():
    texts = ["the cat sat on a mat", "it rained on the whole day"]
    assert text_scores(texts, texts) == pytest.approx(
        {"bleu": 100, "chrf": 100, "rouge1": 1, "rouge2": 1, "rougeL": 1, "exact_match": 1}
    )
    assert text_scores([f" {text}\n" for text in texts], texts)["exact_match"] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Привет, мир!", ["привет", "мир"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("我爱BERT模型。", ["我", "爱", "bert", "模", "型"]),
        ("ひらがなカタ・ー", ["ひ", "ら", "が", "な", "カ", "タ", "ー"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("Cafe\u0301 CAFÉ", ["café", "café"]),
        ("𠀀a", ["𠀀", "a"]),
        ("", []),
    ],
)
def test_words_of_every_script(text, words):
    assert LettersOfEveryScript().tokenize(text) == words


def test_rouge_tells_chinese_texts_apart():
    """With rouge_score's own words both would have none, and score 0."""
    scores = rouge(["我爱北京", "我爱北京"], ["我爱北京", "他在上海"])
    assert scores == {"rouge1": 0.5, "rouge2": 0.5, "rougeL": 0.5}
    assert rouge(["我爱北京"], ["我在北京"]) == pytest.approx(
        {"rouge1": 0.75, "rouge2": 1 / 3, "rougeL": 0.75}
    )


def test_intervals_are_those_of_scoring_anew():
    found, references = draw(0, num_texts=6)

    @cache
    def scores_of(rows: tuple[int, ...]) -> dict[str, float]:
        return text_scores([found[row] for row in rows], [references[row] for row in rows])

    for name in ("bleu", "chrf", "rouge2", "exact_match"):
        fast = bootstrap_interval(score_of_rows(name, found, references), len(found))
        anew = bootstrap_interval(lambda rows, name=name: scores_of(tuple(sorted(rows)))[name], len(found))
        assert fast == pytest.approx(anew), name


def test_bleu_of_texts_without_spaces_counts_characters():
    chinese = ["一只狗在草地上跑。", "两个孩子在雪地里玩。"]
    assert tokenization_for(chinese) == "zh"
    assert tokenization_for(["Two children play.", "一只狗在草地上跑。"]) == "13a"
    assert tokenization_for(["12 + 3 = 15"]) == "13a"
    found = ["一只狗在草地上走。", "两个孩子在雪地里玩。"]
    scores = text_scores(found, chinese, "zh")
    assert scores["bleu"] == sacrebleu.corpus_bleu(found, [chinese], tokenize="zh").score
    assert scores["bleu"] > text_scores(found, chinese)["bleu"]
