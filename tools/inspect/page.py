"""One page about how a model reads a text: its maps, its lens, its heads, each beside random weights.

`tercet inspect` writes it: an HTML file that needs nothing else. Everything is computed for this one text;
what holds of many is for the functions of the other modules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...configs.messages import counted, quietly
from ...data.files.atomic_writes import replace_text
from ...modeling.saved.checkpoint import Checkpoint
from ...modeling.saved.weights import require_finite, require_fit
from ...reports.blocks import Block, Bullets, Figure, Heading, Maps, Prose, Report, Table, name_of_model
from ...reports.charts import draw_heads
from ...reports.line_charts import LinePanel, draw_lines
from ...reports.page import as_page
from ..doctor.examined_model import ExaminedModel, load_examined_model
from .attention_maps import attention_maps, distance_map
from .head_ablation import ablation_effects, divergence
from .inspected_model import Batch, Kind, find_attention, untrained
from .logit_lens import lens_divergence, logit_lens

MOST_TOKENS = 64
"""Of a text whose maps are drawn: more cannot be read."""

TITLES: dict[Kind, str] = {
    "self": "Attention",
    "encoder": "Attention of the encoder",
    "decoder": "Attention of the decoder",
    "cross": "Attention of the decoder to the encoder",
}

TRAINED, RANDOM, BY_DISTANCE = "this model", "random weights", "distance alone"
"""What is shown beside each other."""


def inspect_model(
    name: str, text: str, output: str, *, target: str | None = None, trust_remote_code: bool = False
) -> Path:
    """Write a page about how a model reads a text.

    Args:
        name: The model's folder, or its name on the Hub.
        output: The HTML file to write, which is replaced.
        target: What a sequence-to-sequence model writes for it; its own greedy answer by default.
        trust_remote_code: Run the code that a model brings along.
    """
    with quietly():
        examined = load(name, trust_remote_code=trust_remote_code)
        report = describe(examined, text, target)
    file = Path(output).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_text(file, as_page(report))
    return file


def load(name: str, *, trust_remote_code: bool) -> ExaminedModel:
    """Load a model of which nothing is made up, but for a pooler that its head does not read."""
    checkpoint = Checkpoint.open(name, trust_remote_code=trust_remote_code)
    examined, stored = load_examined_model(checkpoint), checkpoint.weights
    assert examined.fit is not None
    require_fit(examined.fit, stored, lambda each: "pooler" in each, lambda _: True)
    require_finite(examined.model.state_dict(), stored.files[0])
    return examined


@dataclass(frozen=True)
class Reading:
    """What a model reads for a page.

    Args:
        baseline: The same with random weights.
        inputs: What both read.
        folder: Where pictures are drawn.
    """

    model: PreTrainedModel
    baseline: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    inputs: dict[str, Tensor]
    folder: Path

    def words(self, name: str) -> list[str]:
        return spelled(self.tokenizer, self.inputs[name][0])

    @property
    def models(self) -> dict[str, PreTrainedModel]:
        return {TRAINED: self.model, RANDOM: self.baseline}


def describe(examined: ExaminedModel, text: str, target: str | None = None) -> Report:
    """Make the report of a model and a text."""
    model, tokenizer = examined.model, examined.tokenizer
    if tokenizer is None:
        raise ValueError(f"{examined.name} has no tokenizer: save the one that it was trained with beside it")
    inputs = read(examined, tokenizer, text, target)
    with TemporaryDirectory() as folder:
        reading = Reading(model, untrained(model), tokenizer, inputs, Path(folder))
        blocks = [block for section in (show_maps, show_lens, show_ablation) for block in section(reading)]
    heads = sum(layer.num_heads for layer in find_attention(model))
    about = f"{type(model).__name__} of {model.num_parameters():,} parameters, with {heads} attention heads, "
    return Report(f"Inside {name_of_model(examined.name)}", f"{about}reading: {text}", blocks)


def read(
    examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase, text: str, target: str | None
) -> dict[str, Tensor]:
    """Encode a text as a batch of one, as the model was trained to read it."""
    config: Any = examined.config
    encoded = tokenizer(text, return_tensors="pt", verbose=False)
    ids = cast(Tensor, encoded["input_ids"]).long()
    begin, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    opens = examined.member == "decoder" and (config.model_type.startswith("tercet") or begin == end)
    if opens and isinstance(begin, int) and begin not in ids[0, :1]:
        ids = torch.cat([torch.tensor([[begin]]), ids], dim=1)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if getattr(config, "type_vocab_size", 0) > 1 and "token_type_ids" in encoded:
        inputs["token_type_ids"] = cast(Tensor, encoded["token_type_ids"])
    if examined.member == "seq2seq":
        inputs["decoder_input_ids"] = write(examined, tokenizer, inputs, target)
    elif target is not None:
        raise ValueError(
            f"--target is given, but {examined.name} is no sequence-to-sequence model: leave it out"
        )
    longest = max(inputs[name].shape[1] for name in inputs)
    if ids.shape[1] == 0 or longest > MOST_TOKENS:
        raise ValueError(
            f"the text has {counted(longest, 'token')}, and the page shows 1 to {MOST_TOKENS}: give another"
        )
    return inputs


def write(
    examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase, inputs: Batch, target: str | None
) -> Tensor:
    """Return what the decoder reads, (1, T): a target behind what opens it, or what it has written."""
    model: Any = examined.model
    if target is None:
        if examined.reads_twice:
            return cast(Tensor, inputs["input_ids"])
        return model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=MOST_TOKENS - 1)
    labels = tokenizer(text_target=target, return_tensors="pt")["input_ids"]
    start = torch.full((1, 1), int(model.config.decoder_start_token_id))
    return torch.cat([start, cast(Tensor, labels)[:, :-1]], dim=1)


def spelled(tokenizer: PreTrainedTokenizerBase, ids: Tensor) -> list[str]:
    """Write each of the ids (T,) as text, and one that is no text by its name."""
    names = []
    for idx in ids.tolist():
        text = cast(str, tokenizer.decode([idx]))
        is_shown = text.strip() or not text
        names.append(text.strip() or str(tokenizer.convert_ids_to_tokens(idx)) if is_shown else repr(text))
    return names


def show_maps(reading: Reading) -> list[Block]:
    """Show every map, beside that of random weights, and what of it distance explains."""
    maps, random = (attention_maps(model, reading.inputs) for model in reading.models.values())
    source = reading.words("input_ids")
    written = reading.words("decoder_input_ids") if "decoder_input_ids" in reading.inputs else source
    blocks: list[Block] = [
        Heading("Where heads look"),
        Prose(
            "How much each token draws from each other one. A map shows where a head looks, not what that "
            "does to the prediction: see the ablation below. A pattern that random weights, or the mean "
            "weight of each distance, show as well says nothing about these words."
        ),
    ]
    for kind, layers in maps.items():
        views = {TRAINED: layers, RANDOM: random[kind]}
        if kind != "cross":
            views[BY_DISTANCE] = [distance_map(weights) for weights in layers]
        rows = source if kind in ("self", "encoder") else written
        columns = written if kind == "decoder" else source
        lists = {view: [weights[0].tolist() for weights in given] for view, given in views.items()}
        blocks.append(Maps(TITLES[kind], rows, columns, lists))
    return blocks


def show_lens(reading: Reading) -> list[Block]:
    """Show what each layer would predict, if the model predicts tokens."""
    title = Heading("What each layer would predict")
    if reading.model.get_output_embeddings() is None:
        name = type(reading.model).__name__
        return [title, Prose(f"`{name}` has no head that predicts tokens, by which layers could be read.")]
    logits = {title: logit_lens(model, reading.inputs) for title, model in reading.models.items()}
    curves = {title: [*enumerate(lens_divergence(each, reading.inputs))] for title, each in logits.items()}
    about = "KL from the last layer, in nats per token"
    panel = LinePanel(about, "layer (0: what the first layer reads)", curves)
    return [
        title,
        Prose(
            "The logit lens: the states of each layer, read by the model's own norm and head as if they were "
            "the last ones. A line near 0 is no achievement: with random weights, every layer predicts "
            "nearly what the last one does, which is nothing in particular."
        ),
        Figure("lens.png", draw_lines([panel], reading.folder / "lens.png"), about),
        lens_table(reading, logits[TRAINED]),
    ]


def lens_table(reading: Reading, logits: Sequence[Tensor]) -> Table:
    """Write the token that each layer predicts best at each place, and its probability."""
    read_last = "decoder_input_ids" if "decoder_input_ids" in reading.inputs else "input_ids"
    columns = [reading.words(read_last)]
    for layer in logits:
        best = layer[0].float().softmax(dim=-1).max(dim=-1)
        words = spelled(reading.tokenizer, best.indices)
        columns.append(
            [f"{word} {share:.0%}" for word, share in zip(words, best.values.tolist(), strict=True)]
        )
    names = ["at the token", *(f"layer {number}" for number in range(len(logits)))]
    return Table(names, [list(row) for row in zip(*columns, strict=True)])


def show_ablation(reading: Reading) -> list[Block]:
    """Show how far the predictions move without each head, if the model predicts classes."""
    title = Heading("What heads do")
    try:
        effects = {
            title: ablation_effects(model, [reading.inputs], divergence)
            for title, model in reading.models.items()
        }
    except ValueError as error:
        return [title, Prose(str(error).capitalize() + ".")]
    unit = "change of the predictions without the head, KL in nats per prediction"
    panels = {title: per_head(values) for title, values in effects.items()}
    of_heads = [
        (float(effect), f"Layer {number}, head {head} ({layer.name}): {effect:.3g} nats")
        for number, (layer, values) in enumerate(
            zip(find_attention(reading.model), effects[TRAINED], strict=True), 1
        )
        for head, effect in enumerate(values, 1)
    ]
    return [
        title,
        Prose(
            "Each head is removed in turn: the output projection reads zeros in its place. Rows are "
            "attention modules in the order in which the model holds them."
        ),
        Figure("ablation.png", draw_heads(panels, unit, reading.folder / "ablation.png"), unit),
        Bullets([said for _, said in sorted(of_heads, reverse=True)[:3]]),
    ]


def per_head(values: Sequence[Tensor]) -> np.ndarray:
    """Lay out numbers of heads, (H,) for each module, as (L, H) with NaN where a module has fewer."""
    most = max(map(len, values))
    return np.array([[*each.tolist(), *[np.nan] * (most - len(each))] for each in values])
