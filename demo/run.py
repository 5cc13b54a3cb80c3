"""The demonstration: three small models learn from text that this machine already has; a report says what.

    pretrain the encoder -> fill gaps -> fine-tune it, beside random weights -> distill it --+
    pretrain the decoder -> find continuations ----------------------------------------------+--> report.md,
    teach a sequence-to-sequence model -> write telegrams out -------------------------------+    .html, PNG

Nothing is downloaded. The encoder learns masked language modeling, then to tell which package a paragraph
documents, and a student of half its layers learns from it. The decoder learns causal language modeling, and
is measured at finding what continues a paragraph. The sequence-to-sequence model learns to write telegrams
out as sentences.
"""

import json
import resource
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from ..configs.recipe import load_recipe
from ..distill.recipe import DistillationRecipe
from ..distill.report import kept_of
from ..fewshot.recipe import FewShotRecipe
from ..finetune.recipe import FineTuningRecipe
from ..ground.messages import quietly
from ..pretraining.comparison import compare
from ..pretraining.recipe import PretrainingRecipe
from ..pretraining.run import pretrain
from ..pretraining.text import open_text
from ..reporting.markdown import as_markdown
from ..reporting.page import as_page
from ..reporting.verdicts import Verdict, as_data
from ..text.cache import cache_folder
from ..text.documentation import SPLITS, Document, read_documentation
from ..text.paths import named_path
from ..training.disk import replace_text
from ..training.ownership import OWN, begin, is_ours, is_unfinished, remove
from ..training.run_folder import HIDDEN, MODEL, SCORES, writing
from ..training.tracking import LOG, read_log
from .continuing import CONTINUING, Continuations, choose_continuations, load_continuing
from .distilling import DISTILLED, DistillationResult, distill_encoder, load_distillation
from .finetuning import FINETUNED, ROWS, TaskResult, finetune_encoder, load_finetuning
from .gaps import Gaps, measure_gaps
from .measured import Measured
from .prompts import BEGINNINGS, GAPS
from .report import Findings, build_report, measured_of
from .samples import Sample, continue_texts, fill_mask, fill_masks, go_on_from
from .task_chapters import CONFUSIONS
from .tasks import write_tasks
from .telegrams import Telegrams, with_rows, write_telegrams_out
from .verdicts import verdicts

Answers = Mapping[str, Measured]


def scores_as_json(
    gaps: Gaps,
    placed: TaskResult,
    distilled: DistillationResult,
    continued: Continuations,
    telegrams: Telegrams,
    verdicts: Sequence[Verdict],
) -> str:
    """Write the score and the 95 % interval of everything that was measured, by task and by who answered."""
    measured: dict[str, Answers] = {
        "gaps": gaps.among,
        "gaps_first_guess": gaps.first,
        "packages": placed.answers,
        "continuations": continued.answers,
        "telegrams": telegrams.exact,
        "telegrams_rouge_l": telegrams.restored,
    }
    scores: dict[str, Any] = {
        task: {name: {"score": own.score, "interval": own.interval} for name, own in answers.items()}
        for task, answers in measured.items()
    }
    kept = kept_of(distilled.summary)
    scores["distillation"] = {name: {"score": own["score"]} for name, own in kept.items()}
    return json.dumps({"scores": scores, "verdicts": as_data(verdicts)}, indent=2)


SHARE_OF_FIRST = 0.35
"""Share of the whole that the first member's steps take."""

LOOKING = 0.5
"""Seconds between two looks at the log."""


@contextmanager
def telling_expected_time(
    first: PretrainingRecipe, began: float, say: Callable[[str], None]
) -> Iterator[None]:
    """Tell once, while the first member learns, when the whole demonstration will be ready.

    Args:
        first: The recipe of that member.
        began: When the demonstration began, by `time.perf_counter`.
        say: Tells a line.
    """
    ended = Event()

    def watch() -> None:
        while not ended.wait(LOOKING):
            log = first.folder / LOG
            records = read_log(log) if log.exists() else []
            if steps := [record for record in records if "tokens_per_second" in record]:
                waited = time.perf_counter() - began - steps[0]["seconds"]
                say(expectation(waited, steps[0]["seconds"] / steps[0]["step"], first.training.steps))
                return

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def expectation(waited: float, step: float, steps: int) -> str:
    """Describe how long everything will take, in minutes.

    Args:
        waited: Seconds before the first step.
        step: Seconds of a step.
        steps: How many there are.

    >>> from tercet.demo.run import SHARE_OF_FIRST, expectation
    >>> expectation(60, 0.3 * SHARE_OF_FIRST, 1000)
    'a step takes 0.10 seconds: about 6 minutes for the whole demo, on a machine as busy as now'
    """
    minutes = (waited + step * steps / SHARE_OF_FIRST) / 60
    return (
        f"a step takes {step:.2f} seconds: about {minutes:.0f} minutes for the whole demo, on a machine as "
        "busy as now"
    )


MEMBERS = {"encoder": "encoder-demo", "decoder": "decoder-demo", "seq2seq": "telegrams-demo"}
"""Member -> its recipe."""
STAGES = len(MEMBERS) + 3
PAGE = "report.html"
MARKDOWN = "report.md"
CURVES = tuple(f"curves-{member}.png" for member in MEMBERS)
WRITTEN = (*MEMBERS, ROWS, FINETUNED, DISTILLED, CONTINUING, *CURVES, CONFUSIONS, SCORES, MARKDOWN, PAGE)
"""Everything that a demonstration writes."""


def load_recipes(overrides: Iterable[str] = ()) -> list[PretrainingRecipe]:
    """Read the three shipped recipes: of the encoder, the decoder, the sequence-to-sequence model."""
    return [load_recipe(PretrainingRecipe, name, overrides) for name in MEMBERS.values()]


def run_demo(
    output: str | Path,
    *,
    overwrite: bool = False,
    recipes: Sequence[PretrainingRecipe] | None = None,
    finetuning: FineTuningRecipe | None = None,
    distillation: DistillationRecipe | None = None,
    continuing: FewShotRecipe | None = None,
    documents: Mapping[str, Sequence[Document]] | None = None,
) -> Path:
    """Train the three members, measure what they can do, and return the path of the report's page.

    Args:
        output: Folder of everything.
        overwrite: Replace an earlier demonstration there.
        recipes: Other recipes of the members than the shipped ones, in the same order; the rows of the last
            one are always those of the demonstration.
        finetuning: Another recipe of the encoder's task.
        distillation: Another recipe of the student.
        continuing: Another recipe of the decoder's task.
        documents: Other modules for the tasks, by split of pretraining, than those of this machine.

    Raises:
        ValueError: The folder holds something else, or an earlier demonstration without `overwrite`.
        KeyboardInterrupt: A signal stopped it.
    """
    folder = named_path(output, "--output")
    with writing(folder):
        claim_folder(folder, overwrite=overwrite)
        members = recipes or load_recipes()
        try:
            return show_all(folder, members, finetuning, distillation, continuing, documents)
        except KeyboardInterrupt:  # a run within it says --resume, which no demo has
            raise KeyboardInterrupt("stopped; a demo begins anew: add --overwrite") from None


def show_all(
    folder: Path,
    recipes: Sequence[PretrainingRecipe],
    finetuning: FineTuningRecipe | None,
    distillation: DistillationRecipe | None,
    continuing: FewShotRecipe | None,
    documents: Mapping[str, Sequence[Document]] | None,
) -> Path:
    """Carry out the demonstration in a folder that nobody else writes; the arguments are `run_demo`'s."""
    began, began_cpu = time.perf_counter(), cpu_seconds()
    encoder, decoder, seq2seq = (
        replace(recipe, output=str(folder / member)) for member, recipe in zip(MEMBERS, recipes, strict=True)
    )
    say("reading the documentation that is installed on this machine")
    write_tasks(folder / ROWS, documents or documents_of(encoder))
    with telling_expected_time(encoder, began, say):
        findings = [study(1, "encoder", encoder)]
    findings += [study(2, "decoder", decoder), study(3, "seq2seq", with_rows(seq2seq, folder))]
    with stage(4, "encoder: fine-tuning on packages, with and without pretraining"):
        placed = finetune_encoder(finetuning or load_finetuning(), encoder, folder)
    say(f"[4/{STAGES}] encoder: {placed.in_one_line}")
    with stage(5, "encoder: distilling half its layers, with and without a teacher"):
        distilled = distill_encoder(distillation or load_distillation(), placed, folder)
    say(f"[5/{STAGES}] encoder: {distilled.in_one_line}")
    with stage(6, "decoder: finding what continues a paragraph, without training"):
        continued = choose_continuations(continuing or load_continuing(), decoder, folder)
    say(f"[6/{STAGES}] decoder: {continued.in_one_line}")
    gaps, telegrams = measured_of(findings)
    judged = gaps, placed, distilled, continued, telegrams
    told = [*verdicts(*judged)]
    for verdict in told:
        say(verdict.text)
    replace_text(folder / SCORES, scores_as_json(*judged, told))
    report = build_report(
        findings,
        placed,
        distilled,
        continued,
        told,
        folder,
        seconds=time.perf_counter() - began,
        cpu_seconds=cpu_seconds() - began_cpu,
    )
    replace_text(folder / MARKDOWN, as_markdown(report))
    replace_text(folder / PAGE, as_page(report))
    return folder / PAGE


@contextmanager
def stage(number: int, doing: str) -> Iterator[None]:
    """Announce a stage, and let nothing but us speak in it."""
    say(f"[{number}/{STAGES}] {doing}")
    with quietly():
        yield


def cpu_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def next_steps(page: Path) -> list[str]:
    """Return three commands that go on from a finished demonstration, the first of which opens its models."""
    folder = page.parent

    def path(*parts: str) -> str:
        return shlex.quote(str(folder.joinpath(*parts)))

    return [
        f"tercet play {path('encoder', MODEL)} {path('decoder', MODEL)} {path('seq2seq', MODEL)}",
        f"tercet predict {path(FINETUNED, 'encoder', MODEL)} {path(ROWS, 'packages-test.jsonl')} --output "
        f"{path('packages.jsonl')}",
        f"tercet doctor {path('encoder', MODEL)}",
    ]


def documents_of(recipe: PretrainingRecipe) -> dict[str, list[Document]]:
    """Read the modules of the embedded corpus where a run of pretraining has found them."""
    cache = cache_folder(recipe.corpus.cache)
    return {split: read_documentation(split, cache) for split in SPLITS}


def claim_folder(folder: Path, *, overwrite: bool) -> None:
    """Make the folder; of what is there, delete only what an earlier demonstration wrote.

    Raises:
        ValueError: As `run_demo`.
    """
    if folder.is_file():
        raise ValueError(f"output is {folder}, which is a file: name a folder")
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    found = [name for name in names if name not in HIDDEN and not is_unfinished(name, WRITTEN)]
    if foreign := [name for name in found if name not in WRITTEN]:
        raise ValueError(
            f"{folder} holds {foreign[0]}, which was not written by a demo: choose another --output"
        )
    if found and not is_ours(folder):
        raise ValueError(
            f"{folder} has no {OWN}, the list of what a demo wrote there, so an earlier version or another "
            f"program may have written it: check its contents and delete it yourself, or choose another "
            f"--output"
        )
    if found and not overwrite:
        raise ValueError(f"{folder} holds an earlier demo: add --overwrite, or choose another --output")
    if found:
        say(f"replacing the earlier demo in {folder}")
        remove(folder, WRITTEN)
    folder.mkdir(parents=True, exist_ok=True)
    begin(folder, WRITTEN)


def study(number: int, member: str, recipe: PretrainingRecipe) -> Findings:
    """Train a member, read it back, measure it beside what needs no learning, and let it show what it can."""
    with stage(number, f"{member}: tokenizer, corpus, {recipe.training.steps:,} steps"):
        model_folder = pretrain(recipe)
    with stage(number, f"{member}: comparing it with an untrained model and with counting"):
        tokenizer = AutoTokenizer.from_pretrained(model_folder)
        model = AutoModelForPreTraining.from_pretrained(model_folder).eval()
        measured, prompted, examples = show(member, recipe)
        found = Findings(
            member=member,
            recipe=recipe,
            scores=compare(recipe, model, tokenizer),
            log=read_log(recipe.folder / LOG),
            parameters=model.num_parameters(),
            vocabulary=model.config.vocab_size,
            prompted=prompted,
            examples=examples,
            words=sum(len(text.split()) for text in open_text(recipe, "train")[0]),
            measured=measured,
        )
    say(f"[{number}/{STAGES}] {member}: {found.in_one_line}")
    return found


def show(
    member: str, recipe: PretrainingRecipe
) -> tuple[Gaps | Telegrams | None, Sequence[Sample], Sequence[Sample]]:
    """Let a member do what it is for: measured, with made-up texts, and with held-out ones."""
    folder = recipe.folder / MODEL
    if member == "seq2seq":
        return write_telegrams_out(recipe), [], []
    documents = list(open_text(recipe, "validation")[0])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if member == "encoder":
        filler = AutoModelForMaskedLM.from_pretrained(folder).eval()
        made_up = [
            fill_mask(filler, tokenizer, before + word + after, "", len(before), len(before + word))
            for before, word, after in GAPS
        ]
        measured = measure_gaps(filler, tokenizer, documents, open_text(recipe, "train")[0])
        return measured, made_up, fill_masks(filler, tokenizer, documents, count=8)
    writer = AutoModelForCausalLM.from_pretrained(folder).eval()
    prompted = [go_on_from(writer, tokenizer, beginning) for beginning in BEGINNINGS]
    return None, prompted, continue_texts(writer, tokenizer, documents, count=4)


def say(message: str) -> None:
    """Tell whoever watches what is going on, apart from the result on standard output."""
    print(message, flush=True)
