"""`tercet export --gguf`: a decoder as a file of GGUF, for llama.cpp, Ollama and what else is built on them.

    model.gguf          the weights in float32, the sizes, and the tokenizer
    certificate.json    Tercet's model against the stock one, and that one against what was read back

The decoder is exported first (`stock/`), as the first of GPT-2, Llama, Qwen2 and Qwen3 that is exactly the
same. The file is what `convert_hf_to_gguf.py` of llama.cpp makes of such a model: tensors have the names of
the `gguf` package, GPT-2's matrices are transposed, and rows of Llama's queries and keys stand in pairs,
since llama.cpp rotates neighbours. It is read back by transformers and has to give equal logits.

llama.cpp knows how tokenizers cut text into words by names. Byte-level BPE by the pattern of GPT-2 has one,
`gpt-2`, which is what Tercet trains; for other tokenizers nothing is written.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    modeling_gguf_pytorch_utils,
)

from ..ground.messages import LinesError, quietly, shortened
from ..modeling.configuration_tercet import TercetDecoderConfig
from ..modeling.pretrained import TercetPreTrainedModel
from ..stock.architectures import ARCHITECTURES, reasons_against
from ..stock.certificate import Certificate, certify
from ..stock.models import to_stock
from ..stock.probes import MOST_TOKENS, random_rows
from ..stock.run import claimed, write_folder
from ..storage.model_folder import GENERATION_CONFIG, find_folder, require_fit, require_tokenizer
from ..storage.own_model import load_transformer

FILE = "model.gguf"

TOLERANCE = 1e-4
"""By which logits of what is read back may differ, by their scale where it is above 1."""

TYPES = ("llama", "qwen2", "qwen3", "gpt2")
"""Stock architectures that GGUF has under these names, and transformers reads back."""

WORDS = "gpt-2"
"""llama.cpp's name of GPT-2's pattern of words."""

ACTIVATIONS = (("silu", "swish"), ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"))
"""What llama.cpp computes in feed-forward layers, by our names; the second is of GPT-2."""

TRANSPOSED = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")
"""Matrices that GPT-2's class has the other way round."""


@dataclass(frozen=True)
class Written:
    """What was written.

    Args:
        certificate: That of the stock model.
        difference: The largest one of logits of what was read back.
        megabytes: Size of the file.
    """

    certificate: Certificate
    difference: float
    megabytes: float

    def table(self) -> str:
        """Return Markdown that says what was written and how it compares."""
        facts = f"{FILE}, {self.megabytes:.1f} MiB of float32"
        read = f"read back by transformers: logits differ by {self.difference:.1e} at most"
        return f"{self.certificate.table()}\n\n{facts}\n{read}"


def export_gguf(source: str, output: str, *, overwrite: bool = False) -> Written:
    """Write a decoder of ours as a file of GGUF.

    Args:
        source: A folder with a model of ours, or a repository on the Hub.
        output: The folder to write.
        overwrite: Replace what an earlier call has written there.

    Raises:
        ValueError: The package is missing, the folder is in use, the model, its tokenizer or how its texts
            end has no place in the format, or what is read back computes something else.
    """
    if find_spec("gguf") is None:
        raise ValueError("--gguf needs gguf, not installed here: pip install 'tercet[gguf]'")
    with claimed({"the model": source}, output, overwrite=overwrite) as folder:
        ours = load_transformer(source)
        tokenizer = require_tokenizer(find_folder(source), source)
        require_fit(tokenizer, ours.config)
        words = tokenizer_fields(tokenizer, source)
        stock = to_gguf_type(ours)
        words["ids"] |= further_end(stock.generation_config, words["ids"].get("eos"))
        certificate = certify(stock, ours, tokenizer)
        if not certificate.holds:
            raise ValueError(certificate.verdict())
        difference = 0.0

        def fill(partial: Path) -> None:
            nonlocal difference
            write_gguf(stock, words, partial / FILE)
            difference = difference_read_back(stock, partial)
            certificate.save(partial)

        write_folder(folder, stock.get_memory_footprint(), fill)
        return Written(certificate, difference, (folder / FILE).stat().st_size / 2**20)


def to_gguf_type(ours: TercetPreTrainedModel) -> PreTrainedModel:
    """Build the stock model that a decoder is, of an architecture that GGUF has.

    Raises:
        ValueError: There is none, or it has what the format does not say.
    """
    if not isinstance(ours.config, TercetDecoderConfig):
        raise ValueError(
            f"GGUF is written of decoders, and this is a {type(ours).__name__}: use tercet export"
        )
    against = {
        name: reasons_against(ARCHITECTURES[name, TercetDecoderConfig], ours.config, type(ours).__name__)
        for name in TYPES
    }
    nearest = min(against, key=lambda name: len(against[name]))
    if against[nearest]:
        raise LinesError(
            f"GGUF is written of a {', '.join(TYPES)}; the nearest to this model is {nearest}\n"
            f"in the way: {'; '.join(against[nearest])}\n"
            "instead: tercet push uploads it with its code, tercet export --onnx makes graphs of it"
        )
    stock = to_stock(ours, nearest)
    require_writable(stock)
    return stock


def require_writable(stock: PreTrainedModel) -> None:
    """Raise a `ValueError` if a model has what its architecture in GGUF has no key for."""
    config: Any = stock.config
    rope = getattr(config, "rope_parameters", None) or {}
    if not type(stock).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        raise ValueError(f"GGUF is written of causal language models, and this is a {type(stock).__name__}")
    name = "activation_function" if config.model_type == "gpt2" else "hidden_act"
    if (given := getattr(config, name)) not in ACTIVATIONS[config.model_type == "gpt2"]:
        raise ValueError(
            f"{name} is {given!r}, and GGUF has no key for it: llama.cpp would compute "
            f"{ACTIVATIONS[config.model_type == 'gpt2'][0]} in its place: use tercet export"
        )
    if rope.get("rope_type", "default") != "default":
        raise ValueError(
            f"rope_scaling is {rope['rope_type']!r}, which --gguf does not write: use tercet export"
        )
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise ValueError("layers have sliding windows, which GGUF has no key for here: use tercet export")


def write_gguf(stock: PreTrainedModel, words: Mapping[str, Any], path: Path) -> None:
    """Write a stock model and its tokenizer.

    Args:
        stock: Of one of `TYPES`.
        words: What `tokenizer_fields` found.
        path: The file.
    """
    from gguf import MODEL_ARCH, GGUFWriter, LlamaFileType, get_tensor_name_map

    config: Any = stock.config
    architecture = config.model_type
    writer = GGUFWriter(path, architecture)
    writer.add_name(architecture)
    writer.add_file_type(LlamaFileType.ALL_F32)
    add_sizes(writer, config)
    add_words(writer, words, config.vocab_size)
    names = get_tensor_name_map(MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for name, tensor in stock.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert own is not None, name
        writer.add_tensor(own, np.ascontiguousarray(in_gguf(own, tensor.float(), config).numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_sizes(writer: Any, config: Any) -> None:
    """Write the sizes of a model."""
    inner = (
        getattr(config, "intermediate_size", None)
        or getattr(config, "n_inner", None)
        or 4 * config.hidden_size
    )
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def in_gguf(name: str, tensor: Tensor, config: Any) -> Tensor:
    """Arrange a tensor as llama.cpp reads it."""
    if config.model_type == "gpt2" and name.endswith(TRANSPOSED):
        return tensor.T
    heads = {"attn_q": config.num_attention_heads, "attn_k": getattr(config, "num_key_value_heads", 0)}
    num_heads = heads.get(name.split(".")[-2])
    if config.model_type != "llama" or num_heads is None:
        return tensor
    halves = tensor.unflatten(0, (num_heads, 2, -1))  # a head's channel i is rotated with i + half of them
    return halves.transpose(1, 2).flatten(0, 2)


def tokenizer_fields(tokenizer: PreTrainedTokenizerBase, source: str) -> dict[str, Any]:
    """Collect what GGUF says of a tokenizer: its tokens in the order of their ids, merges, special tokens.

    Raises:
        ValueError: It is no byte-level BPE by GPT-2's pattern.
    """
    backend = tokenizer.backend_tokenizer if isinstance(tokenizer, PreTrainedTokenizerFast) else None
    facts = {} if backend is None else json.loads(backend.to_str())
    words, model = facts.get("pre_tokenizer") or {}, facts.get("model") or {}
    is_gpt2 = (
        words.get("type") == "ByteLevel" and words.get("use_regex", True) and not words["add_prefix_space"]
    )
    if model.get("type") != "BPE" or not is_gpt2 or facts.get("normalizer") is not None:
        raise ValueError(
            f"the tokenizer of {source} is no byte-level BPE by GPT-2's pattern, the one kind that --gguf "
            "writes: train with tokenizer.kind=byte_bpe, or use tercet export and llama.cpp's converter"
        )
    require_merged(facts, source)
    added = {token["id"]: token["special"] for token in facts["added_tokens"]}
    tokens = {idx: token for token, idx in tokenizer.get_vocab().items()}
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "unk", "pad")}
    plain, framed = (tokenizer("a", add_special_tokens=adds)["input_ids"] for adds in (False, True))
    adds_bos, adds_eos = framed[0] == ids["bos"] is not None, framed[-1] == ids["eos"] is not None
    if framed != [ids["bos"]] * adds_bos + plain + [ids["eos"]] * adds_eos:
        raise ValueError(
            f"the tokenizer of {source} puts other tokens around a text than one that begins and one that "
            "ends it, for which GGUF has no key: use tercet export"
        )
    return {
        "tokens": tokens,
        "added": added,
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]],
        "ids": {name: idx for name, idx in ids.items() if idx is not None},
        "adds_bos": adds_bos,
        "adds_eos": adds_eos,
        "chat_template": tokenizer.chat_template,
    }


def further_end(defaults: GenerationConfig | None, eos: int | None) -> dict[str, int]:
    """Return what GGUF says of a token that ends an answer beside the tokenizer's end, as one of chats does.

    Args:
        defaults: How the model generates.
        eos: The tokenizer's end of a text.

    Raises:
        ValueError: There are several.
    """
    told: Any = None if defaults is None else defaults.eos_token_id
    ends = {*(told if isinstance(told, list) else [told])} - {None, eos}
    if len(ends) > 1:
        raise ValueError(
            f"{GENERATION_CONFIG} has {len(ends)} tokens that end a text beside the tokenizer's "
            f"({sorted(ends)}), and GGUF has a key for one: llama.cpp would write past the others; leave "
            "one, or use tercet export"
        )
    return {"eot": ends.pop()} if ends else {}


def require_merged(facts: Mapping[str, Any], source: str) -> None:
    """Raise a `ValueError` if a tokenizer finds tokens that llama.cpp, which merges pairs, would not find.

    Those are words that it takes whole without merges, and added tokens of whole words alone.
    """
    model, added = facts["model"], facts["added_tokens"]
    alone = [token["content"] for token in added if token["single_word"] and not token["special"]]
    if model.get("ignore_merges"):
        merging = Tokenizer.from_str(json.dumps({**facts, "model": {**model, "ignore_merges": False}})).model
        names = {token["content"] for token in added}
        alone += [word for word in model["vocab"] if word not in names and len(merging.tokenize(word)) > 1]
    if alone:
        raise ValueError(
            f"the tokenizer of {source} takes {len(alone):,} words or phrases as they stand "
            f"({shortened(alone, 4)}), as terms of tokenizer.add are, and llama.cpp would cut them into "
            "pieces: use tercet export"
        )


def add_words(writer: Any, words: Mapping[str, Any], vocab_size: int) -> None:
    """Write a tokenizer; rows of the model's table without a token are called unused."""
    from gguf import TokenType

    tokens, kinds = [], []
    for idx in range(vocab_size):
        is_special = words["added"].get(idx)
        tokens.append(words["tokens"].get(idx, f"[PAD{idx}]"))
        kind = TokenType.NORMAL if is_special is None else TokenType.USER_DEFINED
        kind = TokenType.CONTROL if is_special else kind
        kinds.append(kind if idx in words["tokens"] else TokenType.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(WORDS)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(words["merges"])
    for name, idx in words["ids"].items():
        getattr(writer, f"add_{name}_token_id")(idx)
    writer.add_add_bos_token(words["adds_bos"])
    writer.add_add_eos_token(words["adds_eos"])
    if words["chat_template"]:
        writer.add_chat_template(words["chat_template"])


@torch.no_grad()
@contextmanager
def without_bar() -> Iterator[None]:
    """Let transformers read a file without a progress bar, which has no switch there, as a context."""
    module: Any = modeling_gguf_pytorch_utils
    bar = module.tqdm
    module.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        module.tqdm = bar


def difference_read_back(stock: PreTrainedModel, folder: Path) -> float:
    """Read a file by transformers and return by how much logits differ, by their scale where that is above 1.

    The configuration is given: transformers does not read the positions of a GPT-2 or the heads' width of a
    Qwen3 from the file, and takes those of the published models.

    Raises:
        ValueError: By more than rounding.
    """
    with quietly(), without_bar():
        read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE, config=stock.config).eval()
    rows = random_rows(stock.config, min(MOST_TOKENS, stock.config.max_position_embeddings), seed=0)
    largest = 0.0
    for row in rows:
        with torch.no_grad():
            a, b = (model(torch.tensor([row])).logits.float() for model in (stock, read))
        largest = max(largest, float((a - b).abs().max() / a.abs().max().clamp(min=1)))
    if not largest <= TOLERANCE:
        raise ValueError(
            f"{FILE} read back by transformers gives logits that differ by {largest:.1e}: use tercet export"
        )
    return largest
