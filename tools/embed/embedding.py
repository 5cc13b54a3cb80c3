"""Vectors of texts: what sentence-transformers gives for a model's folder, computed on packed batches.

    prompt + text -> ids, cut at a length -> states -> pooled -> length 1: each as the folder says

Texts of like length are read together, end to end and without pads; on a CPU, matrices are multiplied in the
order in which it reads them fastest, and activations in the same pass (`prepacked_weights.py`). Both leave
float32 as it is, so that vectors equal those of sentence-transformers up to rounding; weights that are stored
in half precision are computed in float32, too. What Tercet cannot read as it is meant (another architecture,
another pooling) is left to sentence-transformers, and told of.

Shapes: E texts, N tokens of a batch, C width of a vector.
"""

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...configs.documents import read_facts
from ...configs.messages import shortened
from ...data.files.bad_rows import RowError
from ...data.steps.packing import pack
from ...data.tokenizers.special_tokens import DroppedText
from ...modeling.generation.prepacked_weights import prepacked_weights
from ...modeling.heads.classification import POOLING
from ...modeling.pretrained import TercetPreTrainedModel
from ...modeling.saved.checkpoint import Checkpoint
from ...modeling.saved.length import max_length
from ...modeling.saved.model_folder import require_fit
from ...modeling.saved.sentence_vectors import (
    CROSS_ENCODER,
    MODULES,
    OF_TRANSFORMER,
    SETTINGS,
    SentenceVectors,
    UnlikeVectorsError,
    find_vectors,
    vectors_of,
    without_vectors,
)
from ...modeling.saved.weights import NO_KERNELS, require_no_adapter
from ...modeling.sequences import PackedStream
from ...modeling.stock.architectures import NAMES
from ...modeling.stock.models import as_ours
from ...training.devices.precision import fastest_float32_products, products_in

TOKENS_AT_ONCE = 2048
"""Tokens of a batch on a CPU: more of them no longer fit into its cache."""

TOKENS_ON_DEVICE = 2**15
"""The same elsewhere."""

LIBRARY, REMEDY = "sentence_transformers", "pip install sentence-transformers"
"""What makes the vectors of other models, and how to get it."""


KNOWN_SETTINGS = {
    *("max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name"),
    *("message_format", "processing_kwargs", "unpad_inputs", "query_length", "document_length"),
    *("query_expansion", "truncate_dim"),
}
"""What a folder may say of its Transformer when sentence-transformers reads it."""

OF_LOADING = {
    *("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs"),
}
"""Settings that become arguments of `from_pretrained`."""

KNOWN_ARGUMENTS = {"dtype", "torch_dtype", "padding_side", "truncation_side", "model_max_length"}
"""Those among them that choose no code and no file."""


def load_embedder(
    source: str, *, prompt: str | None = None, precision: str = "fp32"
) -> "PackedEmbedder | LibraryEmbedder":
    """Load what makes the vectors of a model: the model itself, or sentence-transformers where it has to.

    Args:
        source: A model of ours or a stock one, or a folder of sentence-transformers; a folder or a Hub id.
        prompt: Name of the folder's prompt that is put before each text; by default the one that it names
            as the default, if any.
        precision: `fp32` or `bf16`, the format of products.
    """
    checkpoint = Checkpoint.open(source)
    checkpoint.require_transformer()
    prompt_text = find_prompt(read_facts(checkpoint.folder / SETTINGS), prompt, source)
    try:
        kind = checkpoint.config.model_type
        if not checkpoint.is_ours and kind not in NAMES:
            raise UnlikeVectorsError(f"{checkpoint.folder} is a {kind}, which Tercet does not read: {REMEDY}")
        with warnings.catch_warnings():  # of how others compare vectors, which stay as they are here
            warnings.simplefilter("ignore", UserWarning)
            return PackedEmbedder(checkpoint, prompt_text, precision)
    except UnlikeVectorsError as error:
        if find_spec(LIBRARY) is None:
            raise
        print(f"{str(error).rpartition(':')[0]}: sentence-transformers computes them", file=sys.stderr)
        return LibraryEmbedder(checkpoint.folder, prompt_text, precision)


def find_prompt(settings: Mapping[str, Any], name: str | None, source: str) -> str:
    """Return the prompt of a name in a folder's settings, or the default one; empty if there is none."""
    if settings.get("model_type") == CROSS_ENCODER:
        raise ValueError(f"{source} is a cross-encoder, which scores pairs: name a model that makes vectors")
    prompts: dict[str, str] = settings.get("prompts") or {}
    if name is None:
        return prompts.get(settings.get("default_prompt_name") or "", "")
    if name not in prompts:
        known = ", ".join(prompts) or "none"
        raise ValueError(f"--prompt is {name!r}, but the prompts of {source} are: {known}")
    return prompts[name]


class PackedEmbedder:
    """A Transformer of ours, or a stock one read as ours, and what its folder says of vectors.

    Args:
        checkpoint: The model on disk.
        prompt: What is put before each text.
        precision: `fp32` or `bf16`.
    """

    def __init__(self, checkpoint: Checkpoint, prompt: str, precision: str):
        told = find_vectors(checkpoint.folder, REMEDY)  # before weights are read
        self.tokenizer = checkpoint.required_tokenizer()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = as_ours(checkpoint)
        require_fit(self.tokenizer, model.config)
        self.vectors = told or vectors_of(model, checkpoint.folder) or assumed_vectors(checkpoint)
        self.tell_of_dropped, self.has_told_of_cut = DroppedText(self.tokenizer), False
        self.prompt = prompt
        self.precision = precision
        of_vectors = self.vectors.max_length
        self.max_length = max_length(checkpoint.config, of_vectors or self.tokenizer.model_max_length)
        self.stack = nn.Module.to(stack_of(model), self.device, torch.float32).eval()
        self.width: int = model.config.hidden_size
        """Numbers of a vector, C."""

    def describe(self) -> str:
        pooled = {"mean": "mean of the states", "first": "first state", "last": "last state"}
        length = ", of length 1" if self.vectors.is_normalized else ""
        prompt = f", prompt {self.prompt!r}" if self.prompt else ""
        return f"{pooled[self.vectors.pooling]}{length}{prompt}, at most {self.max_length:,} tokens"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a vector for each text, (E, C), in float32; texts of like length are read together.

        Raises:
            RowError: The tokenizer finds nothing in a text.
        """
        ids = self.encode(texts)
        lengths = np.array([len(row) for row in ids], dtype=np.int64)
        embeddings = np.empty((len(ids), self.width), np.float32)
        with self.computing():
            for batch in batches(lengths, TOKENS_AT_ONCE if self.device.type == "cpu" else TOKENS_ON_DEVICE):
                embeddings[batch] = self.vectors_of([ids[row] for row in batch]).cpu().numpy()
        return embeddings

    def tell_of_cut(self, are_cut: Sequence[bool]) -> None:
        """Warn, once, if some texts lose their end."""
        if any(are_cut) and not self.has_told_of_cut:
            self.has_told_of_cut = True
            warnings.warn(
                f"texts of more than {self.max_length:,} tokens lose their end: {sum(are_cut):,} of the "
                f"{len(are_cut):,} read first, such as number {are_cut.index(True) + 1:,}",
                stacklevel=2,
            )

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode texts behind the prompt; longer ones lose their end, as in sentence-transformers."""
        options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": False}
        prompted = [self.prompt + text for text in texts]
        self.tell_of_dropped(prompted)
        found = self.tokenizer(prompted, truncation=True, max_length=self.max_length, **options)
        self.tell_of_cut([bool(each.overflowing) for each in found.encodings or ()])
        ids = [np.asarray(row, dtype=np.int64) for row in found["input_ids"]]
        for row, own in enumerate(ids):
            if not len(own):
                raise RowError(
                    row, f"is {texts[row]!r:.40}, in which the tokenizer finds nothing: take it out"
                )
        return ids

    def computing(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(torch.inference_mode())
        stack.enter_context(products_in(self.precision, self.device))
        if self.precision == "fp32":
            stack.enter_context(fastest_float32_products(self.device))
        if self.device.type == "cpu":
            stack.enter_context(prepacked_weights(self.stack))
        return stack

    def vectors_of(self, ids: Sequence[np.ndarray]) -> Tensor:
        """Return the vectors (S, C) of the texts of a batch."""
        packed = pack(ids)
        bounds = packed.cu_seq_lens.to(self.device)
        states = self.stack(
            input_ids=packed.input_ids.to(self.device),
            position_ids=packed.position_ids.to(self.device),
            cu_seq_lens_q=bounds,
            cu_seq_lens_k=bounds,
            max_length_q=packed.max_length,
            max_length_k=packed.max_length,
        ).last_hidden_state.float()
        pooled = POOLING[self.vectors.pooling](states, PackedStream(states.shape[:2], bounds))
        return F.normalize(pooled, dim=-1) if self.vectors.is_normalized else pooled


class LibraryEmbedder:
    """sentence-transformers, for models that are none of ours."""

    def __init__(self, folder: Path, prompt: str, precision: str):
        require_no_adapter(folder)
        require_known_settings(folder)
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(str(folder), model_kwargs=dict(NO_KERNELS)).float()
        self.prompt = prompt
        self.precision = precision
        self.width = cast(int, self.model.get_embedding_dimension())

    def describe(self) -> str:
        return "as sentence-transformers makes them"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        with products_in(self.precision, torch.device(self.model.device.type)):
            return self.model.encode(list(texts), prompt=self.prompt, show_progress_bar=False)


def require_known_settings(folder: Path) -> None:
    """Refuse settings by which a folder chooses how sentence-transformers loads it.

    They become arguments of `from_pretrained`: some let it fetch the code of kernels, or read other files.
    """
    for file in sorted(folder.rglob(OF_TRANSFORMER)):
        told = read_facts(file)
        inner = {key for name in OF_LOADING for key in told.get(name) or {}}
        if unknown := sorted((told.keys() - KNOWN_SETTINGS - OF_LOADING) | (inner - KNOWN_ARGUMENTS)):
            raise ValueError(
                f"{file} chooses how sentence-transformers loads the model ({shortened(unknown)}), which can "
                "take code and files from elsewhere: remove these entries, if you do not need them"
            )


def stack_of(model: TercetPreTrainedModel) -> TercetPreTrainedModel:
    """Return the part of a model whose states are pooled: the encoder, or all but the head."""
    model = without_vectors(model)
    if model.config.is_encoder_decoder:
        return cast(TercetPreTrainedModel, model.get_encoder())
    return cast(TercetPreTrainedModel, model.base_model)


def assumed_vectors(checkpoint: Checkpoint) -> SentenceVectors:
    """Return what sentence-transformers assumes of a folder that says nothing of vectors, and tell of it.

    That is the last state of a causal language model, the mean of the states of any other; the length stays.
    """
    config = checkpoint.config
    is_causal_lm = (config.architectures or [""])[0].endswith("ForCausalLM") and getattr(
        config, "is_causal", True
    )
    pooling = "last" if is_causal_lm else "mean"
    told = {"last": "the last state stands for a text", "mean": "the mean of the states stands for a text"}
    print(
        f"{checkpoint.folder} has no {MODULES}: {told[pooling]}, as in sentence-transformers; train it for "
        "search with tercet finetune semantic-search",
        file=sys.stderr,
    )
    return SentenceVectors(pooling, is_normalized=False)


def batches(lengths: np.ndarray, num_tokens: int) -> Iterator[np.ndarray]:
    """Group texts of like length: the numbers of those of each batch.

    >>> [batch.tolist() for batch in batches(np.array([5, 1, 2, 9]), 6)]
    [[1, 2], [0], [3]]
    """
    order = np.argsort(lengths, kind="stable")
    first = total = 0
    for place, length in enumerate(lengths[order]):
        if total + length > num_tokens and place > first:
            yield order[first:place]
            first, total = place, 0
        total += length
    if len(order) > first:
        yield order[first:]
