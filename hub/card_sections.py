"""The text of a model card, a function a section; a section of which nothing is known is left out."""

from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import version

import yaml

from ..ground.markdown import Code, as_code, escaped, in_fence, table
from ..ground.stored_weights import StoredWeights
from ..stock.certificate import Certificate
from ..storage.finished_run import RECIPE, FinishedRun
from ..storage.model_folder import CERTIFICATE
from ..storage.scores import METRICS, read_scores, what_is_scored
from .usage import Usage

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


def sections(run: FinishedRun, weights: StoredWeights, usage: Usage, repo: str) -> Iterator[str]:
    """Write the sections of a card that something is known for, in their order."""
    yield from introduction(run, weights, repo)
    yield loading(usage, repo)
    yield from architecture(run, weights)
    yield from training(run)
    yield from data(run)
    yield from results(run)
    yield from certificate(run)
    yield limits(run)
    yield citation()


def introduction(run: FinishedRun, weights: StoredWeights, repo: str) -> Iterator[str]:
    """Say what the model is."""
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
        return f"fine-tuned from {escaped(str(base))} for {run.task.replace('_', ' ')}"
    if learned:
        smaller = run.recipe.get("model", {}).get("grow_from")
        start = (
            f"pretrained from the smaller {escaped(smaller)}" if smaller else "pretrained from random weights"
        )
        beginning = f"further pretrained from {escaped(base)}" if base else start
        return f"{beginning} by {learned.replace('_', ' ')}"
    return ""


def loading(usage: Usage, repo: str) -> str:
    """Show how the model is loaded, without Tercet and with it."""
    if not usage.needs_code:
        return f"## How to load it\n\n{program(usage.auto_class, repo, '', '')}"
    with_code = program(usage.auto_class, repo, "", ", trust_remote_code=True")
    with_tercet = program(
        usage.auto_class, repo, "import tercet  # registers the model with transformers\n", ""
    )
    return (
        f"## How to load it\n\n{with_code}\n\nThe code of the model is in this repository; review it before "
        f"you set `trust_remote_code=True`. Where Tercet is installed, it is not "
        f"needed:\n\n{with_tercet}"
    )


def program(auto_class: str, repo: str, before: str, options: str) -> str:
    """Write a program that loads model and tokenizer."""
    return (
        f"```python\n{before}from transformers import {auto_class}, AutoTokenizer\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{repo}"{options})\n'
        f'model = {auto_class}.from_pretrained("{repo}"{options})\n```'
    )


def architecture(run: FinishedRun, weights: StoredWeights) -> Iterator[str]:
    """List the sizes."""
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
        text = yaml.safe_dump(run.recipe, sort_keys=False, allow_unicode=True).strip()
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


def results(run: FinishedRun) -> Iterator[str]:
    """List the scores on held-out text."""
    rows = [[what_is_scored(score.term), METRICS[score.metric], score.shown] for score in read_scores(run)]
    if rows:
        scored = table(["of", "metric", "value"], rows)
        about = (
            f"On the {run.scored_split} {'rows' if run.task else 'text, after the last step'}; 95 % "
            f"intervals are in brackets, where available."
        )
        yield f"## Results\n\n{about}\n\n{scored}"


def certificate(run: FinishedRun) -> Iterator[str]:
    """Show what was proved about the model, and by which figures."""
    if run.certificate:
        proved = Certificate.from_facts(run.certificate)
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
