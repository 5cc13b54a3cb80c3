"""The model card: what a finished model is and how it came about, from the facts that its run left.

Nothing is asked and nothing invented. What a run cannot know (licence, language) comes from a `README.md` in
the model's folder: one that consists of metadata alone completes the card, one with a text replaces it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from yaml import YAMLError

from ...configs.documents import write_document
from ...configs.markdown import Code, as_code, escaped, in_fence, table
from ...modeling.registry import configuration_of
from ...modeling.saved.model_folder import CERTIFICATE
from ...modeling.saved.weights import StoredWeights
from ...modeling.stock.architectures import options_of_export
from ...modeling.stock.certificate import Certificate
from ...reports.finished_run import RECIPE, FinishedRun
from ...reports.scores import INTERVAL, Score, as_pair, metric_words, what_is_scored, words_of_term

CARD = "README.md"


def build_card(run: FinishedRun, weights: StoredWeights, repo: str, revision: str | None = None) -> ModelCard:
    """Write the card of a finished model for a repository, or for a revision other than `main` in it."""
    own = read_own_card(run)
    if own is not None and own.text.strip():
        return own
    usage = usage_of(run)
    metadata: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": usage.pipeline,
        "tags": ["tercet", *([run.config["model_type"], "custom_code"] if usage.needs_code else [])],
        "datasets": [text["dataset"] for text in run.texts.get("train", []) if "dataset" in text] or None,
        "model_name": repo.partition("/")[2],
        "eval_results": evaluation_results(run),
    }
    if own is not None:
        metadata |= own.data.to_dict()
    if not metadata["eval_results"]:
        del metadata["eval_results"]
    body = "\n\n".join(sections(run, weights, usage, repo, revision))
    data = ModelCardData(ignore_metadata_errors=False, **metadata)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{body}\n", ignore_metadata_errors=False)


def read_own_card(run: FinishedRun) -> ModelCard | None:
    """Read the `README.md` that someone put beside the model."""
    file = run.model / CARD
    if not file.exists():
        return None
    try:
        return ModelCard(file.read_text(encoding="utf-8"), ignore_metadata_errors=False)
    except (ValueError, YAMLError) as error:
        raise ValueError(f"the metadata of {file} cannot be read ({error}): correct it") from error


def what_is_missing(run: FinishedRun, card: ModelCard) -> list[str]:
    """List what the card could say and does not, each with a remedy."""
    data = card.data.to_dict()
    add = f"write `{{}}` between two lines `---` into {run.model / CARD}"
    run_tells = {
        "the recipe (no recipe.yaml)": run.recipe,
        "the texts and their hashes (no texts.json)": run.texts,
        "scores (no evaluation.json)": run.evaluation.get("scores"),
        "a plot of the losses (no curves.png)": run.plots,
    }
    has_flops = run.flops or run.task is not None  # which fine-tuning does not count
    flops = "the FLOPs of the training: pretrain with training.measure_utilization=true"
    return [
        *(
            f"{key}: {add.format(example)}"
            for key, example in (("license", "license: apache-2.0"), ("language", "language: en"))
            if key not in data
        ),
        *(f"{name}: push the folder of a run, which has it" for name, fact in run_tells.items() if not fact),
        *([] if has_flops else [flops]),
    ]


USES = {
    "ElectraForPreTraining": ("feature-extraction", "AutoModelForPreTraining"),
    "ForPreTraining": ("fill-mask", "AutoModelForMaskedLM"),
    "ForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "ForCausalLM": ("text-generation", "AutoModelForCausalLM"),
    "ForConditionalGeneration": ("text2text-generation", "AutoModelForSeq2SeqLM"),
    "ForNextSentencePrediction": ("text-classification", "AutoModelForNextSentencePrediction"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "ForTokenClassification": ("token-classification", "AutoModelForTokenClassification"),
    "ForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering"),
    "ForMultipleChoice": ("multiple-choice", "AutoModelForMultipleChoice"),
    "ForSentenceEmbedding": ("sentence-similarity", "AutoModel"),
    "ForReplacedTokenDetection": ("feature-extraction", "AutoModelForPreTraining"),
    "GPT2LMHeadModel": ("text-generation", "AutoModelForCausalLM"),
    "MarianMTModel": ("text2text-generation", "AutoModelForSeq2SeqLM"),
    "T5EncoderModel": ("feature-extraction", "AutoModelForTextEncoding"),
    "Model": ("feature-extraction", "AutoModel"),
}
"""Ending of a class's name, the first that fits -> the Hub's name of the task, and the Auto class to call."""


@dataclass(frozen=True)
class Usage:
    """What someone must know who loads a model."""

    pipeline: str
    """The Hub's name of what it does."""
    auto_class: str
    """The Auto class to call."""
    needs_code: bool
    """Whether code comes with the weights, for those without Tercet."""
    export: str | None = None
    """Options with which `tercet export` writes the model without code, if it can."""


def usage_of(run: FinishedRun) -> Usage:
    """Find how a model is loaded; whether it writes texts anew or translates them, only its recipe says."""
    config = run.config
    architecture = (config.get("architectures") or ["Model"])[0]
    pipeline, auto_class = next(
        (use for ending, use in USES.items() if architecture.endswith(ending)), USES["Model"]
    )
    if run.recipe.get("objective", {}).get("kind") == "translation":
        pipeline = "translation"
    ours = configuration_of(config.get("model_type", ""))
    export = None if ours is None else options_of_export(ours.from_dict(config))
    return Usage(pipeline, auto_class, ours is not None or "auto_map" in config, export)


TITLE = "Tercet: encoder, decoder and sequence-to-sequence Transformers from one set of blocks"
AUTHORS = "The Tercet authors"
LICENSE = "Apache-2.0"

KINDS = {
    "tercet_encoder": "encoder",
    "tercet_decoder": "decoder",
    "tercet_seq2seq": "sequence-to-sequence Transformer",
    "tercet_character": "character language model",
    "tercet_recurrent_seq2seq": "recurrent sequence-to-sequence model",
    "tercet_elmo": "ELMo (a bidirectional language model over characters)",
    "tercet_tagger": "tagger of words (BiLSTM-CRF)",
}
"""Type of a model -> what it is."""

SIZES = {
    "num_hidden_layers": "layers",
    "decoder_num_hidden_layers": "layers of the decoder",
    "hidden_size": "width",
    "num_attention_heads": "attention heads",
    "cell_type": "recurrent layers",
    "attention_score": "score of attention",
    "intermediate_size": "size of the feed-forward network",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "tokens at most",
    "position_embedding_type": "positions",
    "norm_type": "normalization",
    "norm_placement": "its place",
    "feed_forward_type": "feed-forward network",
    "hidden_act": "activation",
}
"""Fields of a configuration worth a line, and their names."""


def sections(
    run: FinishedRun, weights: StoredWeights, usage: Usage, repo: str, revision: str | None
) -> Iterator[str]:
    """Write the sections of a card in their order; one of which nothing is known is left out."""
    yield from introduction(run, weights, repo)
    yield loading(usage, repo, revision)
    yield from architecture(run, weights)
    yield from training(run)
    yield from data(run)
    yield from results(run)
    yield from certificate(run)
    yield limits(run)
    yield citation()


def introduction(run: FinishedRun, weights: StoredWeights, repo: str) -> Iterator[str]:
    """Describe what the model is."""
    yield f"# {repo.partition('/')[2]}"
    kind = KINDS.get(run.config.get("model_type", ""), f"{as_code(str(run.config.get('model_type')))} model")
    article = "An" if kind[0] in "aeiou" else "A"
    how = f", {origin(run)}" if origin(run) else ""
    yield f"{article} {kind} with {sum(weights.parameters.values()):,} parameters{how}, made with Tercet."


def origin(run: FinishedRun) -> str:
    """Describe what the model began as and what it has learned since, or nothing if that is not known."""
    base, learned = run.recipe.get("model", {}).get("path"), run.recipe.get("objective", {}).get("kind")
    if run.teacher:
        return f"distilled from {escaped(run.teacher)}"
    if run.task:
        return f"fine-tuned from {escaped(str(base))} for {in_words(run.task)}"
    if learned:
        beginning = (
            f"further pretrained from {escaped(str(base))}" if base else "pretrained from random weights"
        )
        return f"{beginning} by {in_words(learned)}"
    return ""


def in_words(kind: Any) -> str:
    """Write the kind of an objective or a task in words; a recipe of somebody else may name any."""
    return escaped(str(kind).replace("_", " "))


def loading(usage: Usage, repo: str, revision: str | None) -> str:
    """Show how the model is loaded, without Tercet and with it."""
    place = "" if revision is None else f', revision="{revision}"'
    if not usage.needs_code:
        return f"## How to load it\n\n{program(usage.auto_class, repo, '', place)}"
    with_code = program(usage.auto_class, repo, "", f"{place}, trust_remote_code=True")
    with_tercet = program(
        usage.auto_class, repo, "import tercet  # registers the model with transformers\n", place
    )
    has_form = usage.export is not None and revision is None  # the command reads the main branch
    command = f"`tercet export {repo} FOLDER{usage.export}`"
    exported = f" {command} writes it for programs without Tercet's code." if has_form else ""
    return (
        f"## How to load it\n\n{with_code}\n\nThe code of the model is in this repository; review it before "
        f"you set `trust_remote_code=True`. Where Tercet is installed, it is not "
        f"needed:\n\n{with_tercet}{exported}"
    )


def program(auto_class: str, repo: str, before: str, options: str) -> str:
    """Write a program that loads model and tokenizer."""
    return (
        f"```python\n{before}from transformers import {auto_class}, AutoTokenizer\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{repo}"{options})\n'
        f'model = {auto_class}.from_pretrained("{repo}"{options})\n```'
    )


def architecture(run: FinishedRun, weights: StoredWeights) -> Iterator[str]:
    rows = [[name, str(run.config[field])] for field, name in SIZES.items() if field in run.config]
    formats = ", ".join(f"{number:,} {form}" for form, number in sorted(weights.parameters.items()))
    yield f"## Architecture\n\n{table(['', ''], [*rows, ['stored parameters', formats]])}"


def training(run: FinishedRun) -> Iterator[str]:
    """Yield how it was trained, how long and on what; show the losses and the recipe."""
    told = run.evaluation
    trained_on = told.get("trained_on", {})
    rows = [
        *([name, f"{told[key]:,}"] for key, name in PROGRESS.items() if key in told),
        *([["operations", f"{run.flops:.3g} FLOPs"]] if run.flops else []),
        *([["time in steps", str(timedelta(seconds=round(told["seconds"])))]] if "seconds" in told else []),
        *([name.replace("_", " "), str(value)] for name, value in trained_on.items()),
    ]
    parts = [table(["", ""], rows)] if rows else []
    parts += [f"![{plot.stem.replace('-', ' ')}]({plot.name})" for plot in run.plots]
    if run.recipe:
        command = "distill" if run.teacher else "finetune" if run.task else "pretrain"
        text = write_document(run.recipe).strip()
        parts.append(
            f"The whole recipe, which `tercet {command} {RECIPE}` runs again where its texts are:\n\n"
            f"<details><summary>{RECIPE}</summary>\n\n{in_fence(text, 'yaml')}\n\n</details>"
        )
    if parts:
        yield "\n\n".join(["## Training", *parts])


PROGRESS = {"step": "steps", "tokens": "tokens read", "targets": "targets scored", "skipped": "steps skipped"}
"""What a run counts, and what it is called."""


def data(run: FinishedRun) -> Iterator[str]:
    """List the texts, so that others can tell whether theirs are the same."""
    rows = [
        [
            split,
            Code(text["name"]),
            f"{text['bytes']:,}" if "bytes" in text else "",
            Code(text.get("sha256") or text.get("fingerprint")),
        ]
        for split, texts in run.texts.items()
        for text in texts
    ]
    if rows:
        yield f"## Data\n\n{table(['split', 'text', 'bytes', 'SHA-256, or fingerprint'], rows)}"


def read_scores(run: FinishedRun) -> Iterator[Score]:
    """List the scores that are finite and mean something to a reader."""
    scores = run.evaluation.get("scores", {})
    for name, value in scores.items():
        term, _, metric = name.partition("/")
        if metric in metric_words(term) and value is not None:
            interval = scores.get(f"{name}/{INTERVAL}")
            yield Score(name, value, as_pair(interval))


def evaluation_results(run: FinishedRun) -> list[EvalResult]:
    """Return the scores in the form of the Hub's metadata."""
    texts = run.texts.get(run.scored_split) or run.texts.get("train", [])
    name = ", ".join(text["name"] for text in texts) or "held-out text"
    identity = next((text["dataset"] for text in texts if "dataset" in text), name)
    return [
        EvalResult(
            task_type=(words_of_term(score.term) or ("", "other"))[1],
            task_name=what_is_scored(score.term),
            dataset_type=identity,
            dataset_name=name,
            dataset_split=run.scored_split,
            metric_type=score.metric,
            metric_name=f"{metric_words(score.term)[score.metric]} of {what_is_scored(score.term)}",
            metric_value=score.value,
            metric_args={"interval_95": list(score.interval)} if score.interval else None,
        )
        for score in read_scores(run)
    ]


def with_four_digits(score: Score) -> str:
    """Write a score's value with four digits, and its interval."""
    if score.interval is None:
        return f"{score.value:.4g}"
    low, high = score.interval
    return f"{score.value:.4g} [{low:.4g}, {high:.4g}]"


def results(run: FinishedRun) -> Iterator[str]:
    """List the scores on held-out text."""
    rows = [
        [what_is_scored(score.term), metric_words(score.term)[score.metric], with_four_digits(score)]
        for score in read_scores(run)
    ]
    if rows:
        scored = table(["of", "metric", "value"], rows)
        split, what = escaped(str(run.scored_split)), "rows" if run.task else "text, after the last step"
        about = f"On the {split} {what}; 95 % intervals are in brackets, where available."
        yield f"## Results\n\n{about}\n\n{scored}"


def certificate(run: FinishedRun) -> Iterator[str]:
    """Show what was proved about the model, and by which figures."""
    if run.certificate:
        proved = Certificate.from_facts(run.certificate).escaped()
        versions = ", ".join(f"{name} {number}" for name, number in proved.versions.items())
        yield (
            f"## Certificate\n\n{proved.table()}\n\nWith {versions}. [{CERTIFICATE}]({CERTIFICATE}) has the "
            "hashes of both models."
        )


def limits(run: FinishedRun) -> str:
    """Describe what should not be expected."""
    learned = (run.recipe.get("data") or {}).get("max_length")  # by fine-tuning
    longest = learned or run.config.get("max_position_embeddings")
    points = [
        "It was trained on these texts only, and reproduces their errors and biases.",
        "Its outputs may be wrong, and it has not been evaluated for safety.",
        "Perplexities compare models with the same tokenizer and the same text only.",
        *([f"Texts longer than {longest:,} tokens exceed its maximum length."] if longest else []),
    ]
    return "\n".join(["## Limits\n", *(f"- {point}" for point in points)])


def citation() -> str:
    """Describe how Tercet is cited."""
    return (
        "## Citation\n\n```bibtex\n@software{tercet,\n"
        f"  title = {{{{{TITLE}}}}},\n  author = {{{{{AUTHORS}}}}},\n"
        f"  version = {{{version('tercet')}}},\n  license = {{{LICENSE}}},\n}}\n```"
    )
