"""What a task scores, and by which metrics, has words for reports."""

import subprocess
import sys

import pytest

from tercet.configs.recipe import parse_recipe
from tercet.finetune.tasks.recipes import TASKS
from tercet.pretraining.objectives.recipes import OBJECTIVES
from tercet.reports.scores import metric_words, what_is_scored, words_of_term


@pytest.mark.parametrize("kind", TASKS)
def test_every_task_and_metric_has_words(kind):
    recipe = parse_recipe(TASKS[kind], {"kind": kind})
    assert recipe.TERMS.keys() == {kind}
    assert what_is_scored(kind) == recipe.TERMS[kind][0]
    assert recipe.build().metrics.keys() <= metric_words(kind).keys()


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_all_objectives_have_the_same_words_for_a_term(kind):
    assert all(words_of_term(term) == words for term, words in OBJECTIVES[kind].TERMS.items())
    assert not OBJECTIVES[kind].TERMS.keys() & TASKS.keys()


READS = {
    "fine-tuning": """
from tercet.reports.finetune import report
assert report.called("accuracy", {"kind": "classification"}) == "accuracy"
print([name for name in sys.modules if name.endswith(("tasks.chat", "tasks.ranking"))])
""",
    "pretraining": """
from tercet.reports.pretraining import changed_scores, report
assert report.what_is_scored("clm") != "clm"
print(sorted({"datasets", "sklearn", "sacrebleu"} & {*sys.modules}))
""",
}
"""Kind of run -> a program that makes words of its report, and prints what that should not import."""


@pytest.mark.parametrize("program", READS.values(), ids=READS)
def test_a_report_reads_no_tasks_but_its_own(program):
    program = f"import sys\n{program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
