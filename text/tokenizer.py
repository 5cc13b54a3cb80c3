"""Tokenizers: trained on the corpus by `tokenizers`, wrapped for `transformers`, loaded by `AutoTokenizer`.

    wordpiece    words, cut into pieces found by WordPiece (Devlin et al., 2019)
    byte_bpe     byte pair encoding over bytes (Radford et al., 2019): knows every text, loses none
    unigram      the likeliest pieces of a unigram model (Kudo, 2018), spaces kept as in SentencePiece
    characters   one token per character
    words        the most frequent words; others as their bytes, one token each (ELMo reads characters)

Every kind has a padding token of its own, apart from the one that ends a text, and a token for each role that
an objective may ask for: bos and cls are one token, eos and sep another.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..interop.model_folder import pads, require_dense_ids, untrusted
from .special_tokens import SENTINEL
from .vocabularies import KINDS, SpecialTokens, too_small

Kind = Literal["wordpiece", "byte_bpe", "unigram", "characters", "words"]
Template = Literal["pair", "single", "end", "both_ends", "plain"]

DEFAULT_TEMPLATES: dict[str, Template] = {
    "wordpiece": "pair",
    "characters": "pair",
    "words": "single",
    "byte_bpe": "plain",
    "unigram": "plain",
}


def train_tokenizer(
    documents: Iterable[str],
    kind: Kind,
    vocab_size: int,
    *,
    lowercase: bool = False,
    sentinels: int = 0,
    special_tokens: Sequence[str] = (),
    template: Template | None = None,
    model_max_length: int | None = None,
) -> PreTrainedTokenizerFast:
    """Learn a vocabulary from documents.

    Args:
        documents: Texts, read twice (`byte_bpe`: once).
        kind: How words are cut.
        vocab_size: Most tokens of the vocabulary, special tokens and sentinels included.
        lowercase: Drop case; `wordpiece` then drops accents, too, as BERT's uncased models do.
        sentinels: How many of `<extra_id_0>`, `<extra_id_1>`, ... to have (T5: 100). They have the last
            ids, ascending.
        special_tokens: Names of further ones, e.g. `<fim_middle>`; their ids are those before the sentinels'.
        template: What a call of the tokenizer puts around a text: `pair` [CLS] A [SEP] B [SEP] with token
            types, `single` the same without token types, `end` A [SEP], as sequence-to-sequence models are
            fed, `both_ends` [SEP] A [SEP], as models are that read from both ends, `plain` nothing, as
            decoders are. By default `pair` for `wordpiece` and `characters`, `single` for `words`, `plain`
            for the others.
        model_max_length: Tokens to which `truncation=True` cuts.

    Raises:
        ValueError: The vocabulary cannot hold the special tokens and characters.
    """
    if kind not in KINDS:
        raise ValueError(f"tokenizer kind is {kind!r}: use one of {', '.join(KINDS)}")
    special, learn = KINDS[kind]
    holes = [SENTINEL.format(number) for number in range(sentinels)]
    names = [*special_tokens, *holes]
    room = vocab_size - len(names)
    if room <= len(special.names()):
        raise too_small(room, len(special.names()) + 1)
    backend = learn(documents, room, lowercase, special)
    backend.add_special_tokens(special.added(special.names() + names, holes))
    if backend.get_vocab_size() > vocab_size:
        raise too_small(room, backend.get_vocab_size() - len(names))
    return wrapped(backend, special, template or DEFAULT_TEMPLATES[kind], names, model_max_length)


def wrapped(
    backend: Tokenizer,
    special: SpecialTokens,
    template: Template,
    special_tokens: list[str],
    model_max_length: int | None,
) -> PreTrainedTokenizerFast:
    """Make a tokenizer of `transformers` from one of `tokenizers`."""
    opening, closing = ((name, backend.token_to_id(name)) for name in (special.opening, special.closing))
    if template in {"pair", "single"}:
        single, pair = f"{opening[0]} $A {closing[0]}", f"{opening[0]} $A {closing[0]} $B:1 {closing[0]}:1"
        backend.post_processor = processors.TemplateProcessing(single, pair, [opening, closing])
    elif template == "end":
        backend.post_processor = processors.TemplateProcessing(
            f"$A {closing[0]}", f"$A {closing[0]} $B:1 {closing[0]}:1", [closing]
        )
    elif template == "both_ends":
        single = f"{closing[0]} $A {closing[0]}"
        backend.post_processor = processors.TemplateProcessing(single, f"{single} $B {closing[0]}", [closing])
    options: dict[str, Any] = {} if model_max_length is None else {"model_max_length": model_max_length}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        extra_special_tokens=special_tokens,
        model_input_names=[
            "input_ids",
            *(["token_type_ids"] if template == "pair" else []),
            "attention_mask",
        ],
        padding_side="left" if template == "plain" else "right",  # a decoder continues at the right end
        clean_up_tokenization_spaces=False,
        **special.roles(),
        **options,
    )


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a folder or the Hub; one without a padding token gets one, see `pads`.

    Raises:
        ValueError: There is none, it is not a fast one, has neither a padding nor an end token, or its ids
            have large gaps.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, trust_remote_code=False
        )  # without a question on the terminal
    except Exception as error:  # a folder, a network, a Hub: each fails in its own way
        if "trust_remote_code" in str(error):
            raise untrusted(f"tokenizer.path {path!r} brings", None) from error
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"tokenizer.path {path!r} could not be loaded ({reason}): check the path") from error
    if not tokenizer.is_fast:
        raise ValueError(f"tokenizer.path {path!r} has no fast tokenizer: choose one with a tokenizer.json")
    if not pads(tokenizer, path):
        raise ValueError(
            f"tokenizer.path {path!r} has neither a pad token nor an eos token: add one "
            "(tokenizer.add_special_tokens({'pad_token': '[PAD]'})), and save it again"
        )
    require_dense_ids(tokenizer, path)
    return tokenizer


def frame_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Give the ids that open and close a text: [CLS] and [SEP], else bos and eos, else nothing."""
    opening = tokenizer.bos_token_id if tokenizer.cls_token_id is None else tokenizer.cls_token_id
    closing = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
    return [[] if token is None else [token] for token in (opening, closing)]  # pyright: ignore[reportReturnType]
