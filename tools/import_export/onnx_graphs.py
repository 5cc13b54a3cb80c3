"""`tercet export --onnx`: a model as graphs of ONNX, which run without Python, torch and Tercet.

    model.onnx              encoders, decoders: input_ids, attention_mask (, token_type_ids) -> logits, ...
    encoder_model.onnx      sequence to sequence: input_ids, attention_mask -> last_hidden_state
    decoder_model.onnx      input_ids, encoder_hidden_states, encoder_attention_mask -> logits
    *_int8.onnx             the same with matrices of 8-bit integers, where asked for

Files, inputs and outputs are named as optimum names them. Batches and lengths are open, pads stand behind,
and decoders compute without a cache. What onnxruntime makes of a graph is compared with the model before the
folder is written. Integers are those of dynamic quantization (Jacob et al., 2018, section 2): a scale for
each column of a matrix, and for the state of each position as it comes, so that no text depends on its batch.

Shapes: B batch, T positions.
"""

import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim
from transformers import PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from ...configs.messages import quietly
from ...modeling.pretrained import TercetPreTrainedModel
from ...modeling.saved.checkpoint import Checkpoint
from ...modeling.saved.model_folder import CERTIFICATE, require_fit, save_tokenizer
from ...modeling.saved.saving import keep_known_fields
from ...modeling.saved.sentence_vectors import carried_files, vectors_of, write_files
from ...modeling.stock.probes import MOST_TOKENS, NUM_CHOICES, NUM_RANDOM, TEXTS, pad_id, padded, random_rows
from .run import claimed, write_folder

TOLERANCE = 1e-4
"""By which outputs of a graph may differ from those of the model, by their scale where it is above 1."""

REPEATS = 9
"""Times that a batch is computed to measure it; the median counts."""

PACKAGES = ("onnx", "onnxruntime", "onnxscript")


@dataclass(frozen=True)
class Graph:
    """What becomes one file.

    Args:
        file: Its name, without the ending.
        module: What is traced.
        inputs: Two batches of different sizes by names of inputs, (B, T) or (B, choices, T), and states
            (B, T, C): the first is traced, both are compared.
        outputs: Names of what it returns.
    """

    file: str
    module: nn.Module
    inputs: Sequence[dict[str, Tensor]]
    outputs: Sequence[str]


@dataclass(frozen=True)
class Measured:
    """What was found out about a file.

    Args:
        file: Its name.
        megabytes: Its size.
        milliseconds: Median time of the probe's batch on this machine's CPU.
        torch_milliseconds: That of the model, in float32 and eager mode.
        difference: The largest one of an output, by the scale of the outputs where that is above 1.
        agreement: Share of the predictions (largest logits of real positions, or of rows) that are the same;
            `None` if it predicts nothing.
        alone: The largest difference of an output for a text in a batch from that for the text alone, by the
            same scale.
    """

    file: str
    megabytes: float
    milliseconds: float
    torch_milliseconds: float
    difference: float
    agreement: float | None
    alone: float

    @property
    def holds(self) -> bool:
        """Whether the graph computes the model, and a text in a batch as alone."""
        return max(self.difference, self.alone) <= TOLERANCE


class SourceEncoder(nn.Module):
    """The encoder of a sequence-to-sequence model, with optimum's names of inputs."""

    def __init__(self, model: TercetPreTrainedModel):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the states (B, T, C) of sources (B, T)."""
        return self.encoder(input_ids, attention_mask=attention_mask).last_hidden_state


class TargetDecoder(nn.Module):
    """The decoder of a sequence-to-sequence model and its head, with optimum's names of inputs."""

    def __init__(self, model: TercetPreTrainedModel):
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor
    ) -> Tensor:
        """Return the logits (B, T, V) of targets (B, T), given states (B, S, C) of sources and their mask."""
        return self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
            attention_mask=encoder_attention_mask,
            decoder_input_ids=input_ids,
            use_cache=False,
        ).logits


def export_graphs(source: str, output: str, *, int8: bool = False, overwrite: bool = False) -> list[Measured]:
    """Write the graphs of ONNX that one of our models is, and the files about it that an export has.

    Args:
        source: A folder with a model of ours, or a repository on the Hub.
        int8: Write the graphs with matrices of 8-bit integers, too.
        overwrite: Replace what an earlier call has written there.
    """
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise ValueError(
            f"--onnx needs {' and '.join(missing)}, not installed here: pip install 'tercet[onnx]'"
        )
    with claimed({"the model": source}, output, overwrite=overwrite) as folder:
        checkpoint = Checkpoint.open(source)
        model, tokenizer, found = checkpoint.transformer(), checkpoint.tokenizer, checkpoint.folder
        require_fit(tokenizer, model.config)
        files = carried_files(vectors_of(model, found), found, model.config.hidden_size)
        measured: list[Measured] = []

        def fill(partial: Path) -> None:
            model.config.save_pretrained(partial)
            keep_known_fields(model.config, partial)
            if model.can_generate():
                model.generation_config.save_pretrained(partial)
            if tokenizer is not None:
                save_tokenizer(tokenizer, partial)
            write_files(files, partial)
            measured.extend(write_graphs(model, tokenizer, partial, int8=int8))

        write_folder(folder, model.get_memory_footprint(), fill)
        return measured


def write_graphs(
    model: TercetPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    folder: Path,
    *,
    int8: bool = False,
) -> list[Measured]:
    """Write the graphs of a model, and `certificate.json` with what was measured.

    Args:
        model: The model; it is put into evaluation mode, and float32.
        tokenizer: Its tokenizer, which encodes some sentences to compare by.
        int8: Write graphs with 8-bit integers, too.
    """
    model.eval().float()
    model.config.use_cache = False
    measured = []
    for graph in graphs_of(model, tokenizer):
        path = folder / f"{graph.file}.onnx"
        trace(graph, path)
        found = measure(graph, path)
        if not found.holds:
            raise ValueError(
                f"{path.name} computes outputs that differ by {found.difference:.1e} from the model's, and "
                f"by {found.alone:.1e} between a batch and a text alone, more than {TOLERANCE:.0e}: export "
                "to a stock architecture, without --onnx"
            )
        measured.append(found)
        if int8:
            measured.append(measure(graph, quantize(path)))
    graphs = [asdict(each) | {"holds": each.holds} for each in measured]
    facts = {"tolerance": TOLERANCE, "graphs": graphs}
    (folder / CERTIFICATE).write_text(json.dumps(facts, indent=2) + "\n")
    return measured


@torch.no_grad()
def graphs_of(model: TercetPreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> Iterator[Graph]:
    """Yield the graphs that a model is made of, with batches by which they are compared."""
    batches = [inputs_of(model, rows) for rows in probe_rows(model, tokenizer)]
    if not model.config.is_encoder_decoder or "decoder_input_ids" not in signature(model.forward).parameters:
        outputs = model(**batches[0])
        yield Graph("model", model, batches, [name for name in outputs if torch.is_tensor(outputs[name])])
        return
    encoder = SourceEncoder(model)
    yield Graph("encoder_model", encoder, batches, ["last_hidden_state"])
    targets = [
        {
            "input_ids": batch["input_ids"][:, : 3 + len(batch["input_ids"])],
            "encoder_hidden_states": encoder(**batch),
            "encoder_attention_mask": batch["attention_mask"],
        }
        for batch in batches
    ]
    yield Graph("decoder_model", TargetDecoder(model), targets, ["logits"])


def probe_rows(
    model: TercetPreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> list[list[list[int]]]:
    """Return rows of ids for two batches: sentences if there is a tokenizer, and shorter random rows."""
    limit = min(MOST_TOKENS, getattr(model.config, "max_position_embeddings", None) or MOST_TOKENS)
    first = random_rows(model.config, limit)
    if tokenizer is not None:
        first = [row[:limit] for row in tokenizer(list(TEXTS), verbose=False)["input_ids"]]
    return [first, random_rows(model.config, limit // 2 + 1, seed=1, num_rows=NUM_RANDOM - NUM_CHOICES)]


def inputs_of(model: TercetPreTrainedModel, rows: list[list[int]]) -> dict[str, Tensor]:
    """Pad rows into a batch, with segments where the model has them, and choices if it chooses."""
    ids, mask = padded(rows, pad_id(model.config))
    inputs = {"input_ids": ids, "attention_mask": mask}
    if "token_type_ids" in signature(model.forward).parameters and model.config.type_vocab_size:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    if type(model).__name__.endswith("MultipleChoice"):
        return {name: x.unflatten(0, (-1, NUM_CHOICES)) for name, x in inputs.items()}
    return inputs


def trace(graph: Graph, path: Path) -> None:
    """Write a graph of ONNX whose batches and lengths are open."""
    size, length, source_length = map(Dim, ("size", "length", "source_length"))
    shapes = {}
    for name, x in graph.inputs[0].items():
        of_source = name.startswith("encoder_")
        shapes[name] = {0: size, (1 if of_source else x.dim() - 1): source_length if of_source else length}
    with torch.no_grad(), quietly(), quiet_exporter():
        torch.onnx.export(
            graph.module,
            (),
            path,
            kwargs=graph.inputs[0],
            dynamic_shapes=shapes,
            input_names=list(graph.inputs[0]),
            output_names=list(graph.outputs),
            dynamo=True,
            external_data=is_large(graph.module),
            verbose=False,
        )


def is_large(module: nn.Module) -> bool:
    """Return whether weights need a file beside the graph: protocol buffers end at 2 GiB."""
    return sum(x.nbytes for x in module.state_dict().values()) > 1.9 * 2**30


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Leave out what the exporter says about its own work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def quantize(path: Path) -> Path:
    """Write the graph of a file with matrices of 8-bit integers beside it, and return its file."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = path.with_name(f"{path.stem}_int8.onnx")
    with quietly(), quiet_exporter():
        model = onnx.load(path)
        del model.graph.value_info[:]  # the exporter's shapes are of matrices that it transposed since
        quantize_dynamic(model, target, weight_type=QuantType.QInt8, per_channel=True)
        model = onnx.load(target)
        scale_positions(model.graph)
        onnx.save(model, target)
    return target


def scale_positions(graph: Any) -> None:
    """Give the states of each position a scale of their own, where dynamic quantization has one for a batch.

    A state x becomes round(x / s) + 128 of s = max |x| / 127, as integers from 1 to 255.
    """
    from onnx import TensorProto, numpy_helper
    from onnx.helper import make_node

    constants: dict[str, Any] = {
        "levels": np.float32(127),
        "least": np.finfo(np.float32).tiny,
        "middle": np.float32(128),
        "zero_point": np.uint8(128),
        "channels": np.array([-1], np.int64),
    }
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(x), f"position/{name}") for name, x in constants.items()
    )
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type != "DynamicQuantizeLinear":
            nodes.append(node)
            continue
        (x,), (q, scale, zero_point) = node.input, node.output
        nodes += [
            make_node("Abs", [x], [f"{q}/size"]),
            make_node("ReduceMax", [f"{q}/size", "position/channels"], [f"{q}/largest"], keepdims=1),
            make_node("Max", [f"{q}/largest", "position/least"], [f"{q}/range"]),
            make_node("Div", [f"{q}/range", "position/levels"], [scale]),
            make_node("Div", [x, scale], [f"{q}/scaled"]),
            make_node("Round", [f"{q}/scaled"], [f"{q}/rounded"]),
            make_node("Add", [f"{q}/rounded", "position/middle"], [f"{q}/shifted"]),
            make_node("Cast", [f"{q}/shifted"], [q], to=TensorProto.UINT8),
            make_node("Identity", ["position/zero_point"], [zero_point]),
        ]
    del graph.node[:]
    graph.node.extend(nodes)


@torch.no_grad()
def measure(graph: Graph, path: Path) -> Measured:
    """Run a file by onnxruntime and the model on the same batches; compare outputs, and time the first."""
    from onnxruntime import InferenceSession

    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    difference, alone, same = 0.0, 0.0, []
    for batch in graph.inputs:
        expected = named(graph.module(**batch), graph.outputs)
        computed = run(session, graph, batch)
        for name, found in computed.items():
            a, b = (real(np.asarray(x), batch) for x in (expected[name], found))
            difference = max(difference, relative(a, b))
            if "logits" in name:
                same.append((a.argmax(-1) == b.argmax(-1)).ravel())
        for row, text in enumerate(texts_in(batch)):
            own = {name: x[row : row + 1] for name, x in batch.items()}
            for name, found in run(session, graph, text).items():
                in_batch = real(computed[name][row : row + 1], own)
                alone = max(alone, relative(in_batch, real(found, text)))
    return Measured(
        path.name,
        sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")) / 2**20,
        milliseconds(lambda: run(session, graph, graph.inputs[0])),
        milliseconds(lambda: graph.module(**graph.inputs[0])),
        difference,
        float(np.concatenate(same).mean()) if same else None,
        alone,
    )


def run(session: Any, graph: Graph, batch: dict[str, Tensor]) -> dict[str, np.ndarray]:
    found = session.run(list(graph.outputs), {name: x.numpy() for name, x in batch.items()})
    return dict(zip(graph.outputs, found, strict=True))


def relative(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference, by the scale of `a` where it is above 1; infinite for no number."""
    largest = float(np.nan_to_num(np.abs(a - b), nan=np.inf).max())
    return largest / max(1.0, float(np.nan_to_num(np.abs(a)).max()))


def texts_in(batch: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield each row of a batch as a batch of its own, without the pads behind it."""
    (name,) = (name for name in batch if name.endswith("attention_mask"))
    side, mask = name.removesuffix("attention_mask"), batch[name]
    for row in range(len(mask)):
        length = int(mask[row].sum(-1).max())
        own = {name: x[row : row + 1] for name, x in batch.items()}
        yield own | {
            name: x[:, :length] if x.is_floating_point() else x[..., :length]
            for name, x in own.items()
            if name.startswith(side)
        }


def named(outputs: Any, names: Sequence[str]) -> dict[str, Tensor]:
    return {names[0]: outputs} if torch.is_tensor(outputs) else {name: outputs[name] for name in names}


def real(x: np.ndarray, batch: dict[str, Tensor]) -> np.ndarray:
    """Keep the outputs of real positions: those of pads are undefined."""
    mask = batch.get("attention_mask")
    if mask is None or x.shape[: mask.dim()] != tuple(mask.shape):
        return x
    return x[mask.bool().numpy()]


def milliseconds(compute: Callable[[], object]) -> float:
    """Return the median time of a computation, the first one left out."""
    compute()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        compute()
        times.append(time.perf_counter() - start)
    return 1000 * median(times)


def table(measured: Sequence[Measured]) -> str:
    """Return Markdown that says what was written and how it compares."""
    rows = []
    for each in measured:
        same = "" if each.agreement is None else f"{each.agreement:.1%}"
        times = f"{each.milliseconds:.1f} | {each.torch_milliseconds:.1f}"
        differences = f"{each.difference:.1e} | {each.alone:.1e}"
        rows.append(f"| {each.file} | {each.megabytes:.1f} | {times} | {differences} | {same} |")
    return "\n".join(
        [
            "| file | MiB | ms | ms of torch | largest difference | text alone | same predictions |",
            "|---|--:|--:|--:|--:|--:|--:|",
            *rows,
        ]
    )
