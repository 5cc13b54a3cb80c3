"""The demonstration: three small models learn from text that this machine already has; a report says what.

    recipes -> pretrain each -> read it back by its Auto class -> compare, show ---+
                    |                                                              +--> report.md, .html, PNG
    rows of tasks --+--> fine-tune each, beside random weights --> compare, show --+
                    +--> distill the fine-tuned encoder to half its layers --------+
                    +--> prompt each pretrained one: zero-, one- and few-shot -----+

Nothing is downloaded. The encoder learns masked language modeling and next-sentence prediction, the decoder
causal language modeling, the sequence-to-sequence model span corruption. Then the first two learn to tell
which package a paragraph documents, and the last one to write the first lines of docstrings. A student of
half the layers learns from the first one, and all three are prompted without training.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)

from ..configs.recipe import load_recipe
from ..distill.recipe import DistillationRecipe
from ..fewshot.recipe import FewShotRecipe
from ..finetune.recipe import FineTuningRecipe
from ..interop.messages import quietly
from ..pretraining.comparison import compare
from ..pretraining.recipe import PretrainingRecipe
from ..pretraining.run import pretrain
from ..pretraining.text import open_text
from ..reporting.blocks import as_markdown
from ..reporting.page import as_page
from ..text.cache import cache_folder
from ..text.documentation import SPLITS, Document, read_documentation
from ..text.paths import named_path
from ..training.disk import replace_text
from ..training.ownership import OWN, begin, is_ours, is_unfinished, remove
from ..training.run_folder import HIDDEN, MODEL, writing
from ..training.tracking import LOG, read_log
from .distilling import DISTILLED, distill_encoder, load_distillation
from .finetuning import FINETUNED, ROWS, TASKS, TaskResult, finetune_member, load_tasks
from .prompting import PROMPTING, load_prompting, prompt_members
from .report import Findings, build_report
from .samples import Sample, continue_texts, fill_masks, judge_pairs, restore_spans
from .task_chapters import CONFUSIONS
from .tasks import write_tasks

MEMBERS = ("encoder", "decoder", "seq2seq")
STAGES = 2 * len(MEMBERS) + 2
PAGE = "report.html"
MARKDOWN = "report.md"
CURVES = tuple(f"curves-{member}.png" for member in MEMBERS)
WRITTEN = (*MEMBERS, ROWS, FINETUNED, DISTILLED, PROMPTING, *CURVES, CONFUSIONS, MARKDOWN, PAGE)
"""Everything that a demonstration writes."""


def load_recipes(overrides: Iterable[str] = ()) -> list[PretrainingRecipe]:
    """Read the three shipped recipes: of the encoder, the decoder, the sequence-to-sequence model."""
    return [load_recipe(PretrainingRecipe, f"{member}-demo", overrides) for member in MEMBERS]


def run_demo(
    output: str | Path,
    *,
    overwrite: bool = False,
    recipes: Sequence[PretrainingRecipe] | None = None,
    tasks: Mapping[str, FineTuningRecipe] | None = None,
    distillation: DistillationRecipe | None = None,
    prompting: FewShotRecipe | None = None,
    documents: Mapping[str, Sequence[Document]] | None = None,
) -> Path:
    """Train the three members, fine-tune each on a task, and return the path of the report's page.

    Args:
        output: Folder of everything.
        overwrite: Replace an earlier demonstration there.
        recipes: Other recipes of pretraining than the shipped ones, in the same order.
        tasks: Other recipes of the tasks, by name.
        distillation: Another recipe of the student.
        prompting: Another recipe of the questions.
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
            return show_all(folder, members, tasks, distillation, prompting, documents)
        except KeyboardInterrupt:  # a run within it says --resume, which no demo has
            raise KeyboardInterrupt("stopped; a demo begins anew: add --overwrite") from None


def show_all(
    folder: Path,
    recipes: Sequence[PretrainingRecipe],
    tasks: Mapping[str, FineTuningRecipe] | None,
    distillation: DistillationRecipe | None,
    prompting: FewShotRecipe | None,
    documents: Mapping[str, Sequence[Document]] | None,
) -> Path:
    """Carry out the demonstration in a folder that nobody else writes; the arguments are `run_demo`'s."""
    began = time.perf_counter()
    members = {
        member: replace(recipe, output=str(folder / member))
        for member, recipe in zip(MEMBERS, recipes, strict=True)
    }
    findings = study_all(members)
    write_tasks(folder / ROWS, documents or documents_of(members["encoder"]))
    results = finetune_members(members, tasks or load_tasks(), folder)
    say(f"[{STAGES - 1}/{STAGES}] encoder: distilling half its layers, with and without a teacher")
    with quietly():
        distilled = distill_encoder(distillation or load_distillation(), results[0], folder)
    say(f"[{STAGES - 1}/{STAGES}] encoder: {distilled.in_one_line}")
    say(f"[{STAGES}/{STAGES}] all: prompting without training")
    with quietly():
        models = [recipe.folder / MODEL for recipe in members.values()]
        prompted = prompt_members(prompting or load_prompting(), models, folder)
    say(f"[{STAGES}/{STAGES}] {prompted.in_one_line}")
    report = build_report(findings, results, distilled, prompted, folder, seconds=time.perf_counter() - began)
    replace_text(folder / MARKDOWN, as_markdown(report))
    replace_text(folder / PAGE, as_page(report))
    return folder / PAGE


def study_all(members: Mapping[str, PretrainingRecipe]) -> list[Findings]:
    """Pretrain all members and measure them."""
    findings = []
    for number, (member, recipe) in enumerate(members.items(), start=1):
        say(f"[{number}/{STAGES}] {member}: tokenizer, corpus, {recipe.training.steps:,} steps")
        with quietly():
            findings.append(study(member, recipe))
        say(f"[{number}/{STAGES}] {member}: {findings[-1].in_one_line}")
    return findings


def finetune_members(
    members: Mapping[str, PretrainingRecipe], tasks: Mapping[str, FineTuningRecipe], folder: Path
) -> list[TaskResult]:
    """Teach each member its task."""
    results = []
    for number, (member, recipe) in enumerate(members.items(), start=len(members) + 1):
        task = TASKS[member]
        say(f"[{number}/{STAGES}] {member}: fine-tuning on {task}, with and without pretraining")
        with quietly():
            results.append(finetune_member(member, tasks[task], recipe, folder))
        say(f"[{number}/{STAGES}] {member}: {results[-1].in_one_line}")
    return results


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


def study(member: str, recipe: PretrainingRecipe) -> Findings:
    """Train a member, read it back, measure it beside what needs no learning, and let it show what it can."""
    began = time.perf_counter()
    model_folder = pretrain(recipe)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForPreTraining.from_pretrained(model_folder).eval()
    say(f"{member}: loading it, and comparing it with an untrained model and n-gram baselines")
    return Findings(
        member=member,
        recipe=recipe,
        scores=compare(recipe, model, tokenizer),
        log=read_log(recipe.folder / LOG),
        parameters=model.num_parameters(),
        vocabulary=model.config.vocab_size,
        examples=show(member, recipe),
        words=sum(len(text.split()) for text in open_text(recipe, "train")[0]),
        seconds=time.perf_counter() - began,
    )


def show(member: str, recipe: PretrainingRecipe) -> Sequence[Sample]:
    """Let a member do what it is for, on held-out text."""
    folder = recipe.folder / MODEL
    documents = list(open_text(recipe, "validation")[0])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if member == "encoder":
        filler = AutoModelForMaskedLM.from_pretrained(folder).eval()
        judge = AutoModelForNextSentencePrediction.from_pretrained(folder).eval()
        return [
            *fill_masks(filler, tokenizer, documents, count=8),
            *judge_pairs(judge, tokenizer, documents, count=4),
        ]
    if member == "decoder":
        writer = AutoModelForCausalLM.from_pretrained(folder).eval()
        return continue_texts(writer, tokenizer, documents, count=4)
    restorer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return restore_spans(restorer, tokenizer, documents, count=4)


def say(message: str) -> None:
    """Tell whoever watches what is going on, apart from the result on standard output."""
    print(message, flush=True)
