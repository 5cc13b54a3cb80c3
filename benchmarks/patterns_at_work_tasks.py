"""Tasks that long texts or their patterns decide: nested lists, masked tokens of novels, film reviews.

Every model and every score is a cell: a folder with a `result.json` (`cells.py`).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import log
from pathlib import Path
from statistics import mean
from typing import Any, cast

from cells import cell_folder, once
from held_out import measure_as
from measuring import Conditions, in_fresh_process
from samples import row_sample, text_sample

from tercet import TercetEncoderConfig, TercetEncoderModel
from tercet.configs.recipe import load_recipe
from tercet.finetune.recipe import FineTuningRecipe
from tercet.finetune.run import finetune
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.run import pretrain
from tercet.text.documents import open_documents
from tercet.text.row_files import read_file
from tercet.text.tokenizer import load_tokenizer, train_tokenizer

PATTERNS: dict[str, dict[str, int]] = {
    "full": {},
    "local": {"attention_window_blocks": 2, "attention_global_tokens": 0, "attention_random_blocks": 0},
    "big bird": {"attention_window_blocks": 2, "attention_global_tokens": 1, "attention_random_blocks": 3},
}
"""The window is a block and its two neighbours. The global token is the one that classifies, [CLS]."""

Row = dict[str, Any]
"""What was trained, and its scores."""


@dataclass(frozen=True)
class ListScale:
    """How large everything of nested lists is."""

    layers: int = 4
    width: int = 128
    """Hidden size."""
    block_size: int = 16
    """Of the patterns."""
    epochs: int = 4


@dataclass(frozen=True)
class NovelScale:
    """How large everything of novels is."""

    sizes: dict[str, int]
    """Fields of the models."""
    short: int = 512
    long: int = 4096
    """Tokens of context."""
    block_size: int = 64
    """Of the patterns."""
    tokens: int = 3_000_000
    """That every model reads."""
    tokens_per_step: int = 8192
    characters: int | None = None
    """Of the text at most."""


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    lists: ListScale
    novels: NovelScale
    seeds: int = 3
    """Runs of each classifier of lists."""
    review_epochs: int = 2
    review_seeds: int = 1
    """Runs of each classifier of reviews."""
    num_rows: int | None = None
    """Rows of a task at most."""


FULL = Scale(ListScale(), NovelScale({"num_hidden_layers": 4}))
TRIAL = Scale(
    ListScale(layers=2, width=32, epochs=1),
    NovelScale(
        {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2},
        short=64, long=256, block_size=16, tokens=4096, tokens_per_step=1024, characters=60_000,
    ),
    num_rows=120,
)  # fmt: skip


@dataclass(frozen=True)
class Workshop:
    """Where and how models are made."""

    data: Path
    folder: Path
    scale: Scale
    conditions: Conditions = field(compare=False)

    def cell(self, name: str, depends_on: object) -> Path:
        """Name the folder of what depends on this and on the number of threads."""
        return cell_folder(self.folder, name.replace(" ", "-"), (self.conditions.threads, depends_on))

    def once(self, cell: Path, compute: Callable[..., Row], *arguments: Any) -> Row:
        """Compute a cell in a process of its own, unless it is finished."""
        return once(cell, lambda _: in_fresh_process(self.conditions, compute, *arguments))

    def rows(self, task: str) -> list[str]:
        """Write the overrides that name a task's rows; in a trial, a few of them."""
        overrides = []
        for split in ("train", "validation", "test"):
            file = self.data / task / f"{split}.jsonl.gz"
            if self.scale.num_rows is not None:
                sample = self.folder / f"{task.replace('/', '-')}-{split}.jsonl"
                file = row_sample(str(file), ("text", "label"), self.scale.num_rows, sample)
            overrides.append(f"data.{split}={file}")
        return overrides


def seeds_override(num_seeds: int) -> str:
    """Write the override that names the seeds."""
    return f"training.seeds={[*range(num_seeds)]}"


def pattern_fields(pattern: str, layers: int, block_size: int) -> dict[str, Any]:
    """Return the fields of a configuration by which all layers see a pattern."""
    if pattern == "full":
        return {}
    kinds = ["big_bird_attention"] * layers
    return {"layer_types": kinds, "attention_block_size": block_size, **PATTERNS[pattern]}


def listops(shop: Workshop) -> list[Row]:
    """Learn the value of nested lists from random weights, with each pattern, for the same epochs."""
    rows = []
    for pattern, fields in PATTERNS.items():
        cell = shop.cell(
            f"listops {pattern}", (fields, shop.scale.lists, shop.scale.num_rows, shop.scale.seeds)
        )
        overrides = [
            *shop.rows("synthetic/listops"),
            f"model.path={cell / 'untrained'}",
            "model.from_scratch=true",
            f"training.epochs={shop.scale.lists.epochs}",
            "training.learning_rate=1.0e-3",
            seeds_override(shop.scale.seeds),
            f"output={cell / 'run'}",
        ]
        rows.append({"pattern": pattern} | shop.once(cell, learn_lists, shop, pattern, overrides))
    return rows


def learn_lists(shop: Workshop, pattern: str, overrides: list[str]) -> Row:
    """Build an untrained model with a pattern and a tokenizer of lists, and teach it."""
    recipe = load_recipe(FineTuningRecipe, "text-classification", overrides)
    tokenizer = train_tokenizer(read_file(recipe.data.train, ("text",))["text"], "wordpiece", 64)
    scale, untrained = shop.scale.lists, recipe.model.path
    config = TercetEncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=scale.width,
        intermediate_size=11 * scale.width // 4,
        num_hidden_layers=scale.layers,
        num_attention_heads=4,
        max_position_embeddings=1024,
        pad_token_id=cast(int, tokenizer.pad_token_id),
        **pattern_fields(pattern, scale.layers, scale.block_size),
    )
    TercetEncoderModel(config).save_pretrained(untrained)
    tokenizer.save_pretrained(untrained)
    return taught(overrides)


def taught(overrides: list[str]) -> Row:
    """Fine-tune a classifier, going on with an interrupted run; its scores on the test rows."""
    recipe = load_recipe(FineTuningRecipe, "text-classification", overrides)
    finetune(recipe, resume=True)
    told = json.loads((Path(recipe.output) / "scores.json").read_text(encoding="utf-8"))
    seeds = told["seeds"].values()
    return {
        "values": [seed["test"]["accuracy"] for seed in seeds],
        "baselines": {name: scores["accuracy"] for name, scores in told["baselines"].items()},
        "seconds": mean(seed["seconds"] for seed in seeds),
    }


def contexts(shop: Workshop) -> list[Row]:
    """Learn masked tokens of novels with short and with long contexts; judge the models with both."""
    return [
        {"pattern": pattern, "length": length}
        | shop.once(reader_cell(shop, pattern, length), read_novels, shop, pattern, length)
        for pattern, length in readers(shop)
    ]


def readers(shop: Workshop) -> list[tuple[str, int]]:
    """List the models that read novels: a pattern, and the tokens of a sequence."""
    novels = shop.scale.novels
    return [("full", novels.short), *((pattern, novels.long) for pattern in PATTERNS)]


def reader_cell(shop: Workshop, pattern: str, length: int) -> Path:
    """Name the folder of a model that reads novels."""
    return shop.cell(f"context {pattern} {length}", (PATTERNS[pattern], length, shop.scale.novels))


def read_novels(shop: Workshop, pattern: str, length: int) -> Row:
    """Pretrain, and measure masked tokens with every context that the model was trained for."""
    overrides = [*novel_recipe(shop, pattern, length), f"output={reader_cell(shop, pattern, length) / 'run'}"]
    model = pretrain(load_recipe(PretrainingRecipe, "encoder-english", overrides), resume=True)
    told = json.loads((model.parent / "evaluation.json").read_text(encoding="utf-8"))
    lengths = [each for each in (shop.scale.novels.short, shop.scale.novels.long) if each <= length]
    judge = partial(bits_per_character, model, overrides)
    return {
        "bits": {str(each): judge(each) for each in lengths},
        "seconds": told["seconds"],
        "tokens": told["tokens"],
    }


def novel_recipe(shop: Workshop, pattern: str, length: int) -> list[str]:
    """Write the overrides of `encoder-english` for novels in sequences of a length.

    Sequences go on across the ends of documents: all have the same length, and every model reads as much.
    """
    scale, text = shop.scale.novels, shop.data / "pretrain_en"
    files = {split: text / split / "novels.txt.gz" for split in ("train", "validation")}
    if scale.characters is not None:
        for split in files:
            sample = text_sample(text / split, shop.folder / f"text-{split}", scale.characters)
            files[split] = next(iter(sorted(sample.iterdir())))
    sparse = pattern_fields(pattern, scale.sizes["num_hidden_layers"], scale.block_size)
    fields = scale.sizes | sparse | {"max_position_embeddings": scale.long}
    return [
        f"model.overrides={json.dumps(fields)}",
        "tokenizer={kind: byte_bpe, vocab_size: 8192}",
        *(f"corpus.{split}={file}" for split, file in files.items()),
        f"corpus.cache={shop.folder / 'cache'}",
        f"corpus.sequence_length={length}",
        "corpus.isolate_documents=false",
        "objective={kind: masked_language_modeling, mlm_probability: 0.2}",
        "training.optimizer={kind: muon, learning_rate: 6.0e-3}",
        "training.schedule={kind: linear, warmup_ratio: 0.1}",
        "training.evaluate_every=null",
        f"training.tokens_per_step={scale.tokens_per_step}",
        f"training.steps={max(scale.tokens // scale.tokens_per_step, 1)}",
    ]


def bits_per_character(model: Path, overrides: list[str], length: int) -> float:
    """Measure the masked tokens of the held-out text, cut into sequences of a length.

    Bits of a token are divided by the characters of an average one, which is the same for all models.
    """
    judge = [*overrides, f"corpus.sequence_length={length}"]
    recipe = load_recipe(PretrainingRecipe, "encoder-english", judge)
    loss = measure_as(recipe, model)["mlm/loss"]
    texts = [*open_documents(str(recipe.corpus.validation))]
    ids: Any = load_tokenizer(str(model))(texts, add_special_tokens=False)["input_ids"]
    return loss / log(2) * sum(map(len, ids)) / sum(map(len, texts))


def reviews(shop: Workshop) -> list[Row]:
    """Fine-tune the models of novels to tell good film reviews from bad ones, cut to each model's context."""
    contexts(shop)
    scale, rows = shop.scale, []
    for pattern, length in readers(shop):
        reader = reader_cell(shop, pattern, length)
        cell = cell_folder(reader, "reviews", (scale.review_epochs, scale.review_seeds, scale.num_rows))
        overrides = [
            *shop.rows("movie_reviews"),
            f"model.path={reader / 'run' / 'model'}",
            f"data.max_length={length}",
            f"training.epochs={scale.review_epochs}",
            "training.batch_size=16",
            "training.learning_rate=3.0e-4",
            seeds_override(scale.review_seeds),
            f"output={cell / 'run'}",
        ]
        rows.append({"pattern": pattern, "length": length} | shop.once(cell, taught, overrides))
    return rows
