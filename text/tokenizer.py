"""Tokenizers: trained on the corpus by `tokenizers`, wrapped for `transformers`, loaded by `AutoTokenizer`.

    wordpiece    words, cut into pieces found by WordPiece (Devlin et al., 2019)
    byte_bpe     byte pair encoding over bytes (Radford et al., 2019): knows every text, loses none
    unigram      the likeliest pieces of a unigram model (Kudo, 2018), spaces kept as in SentencePiece
    characters   one token per character
    words        the most frequent words; others as their bytes, one token each (ELMo reads characters)

Every kind has a padding token of its own, apart from the one that ends a text, and a token for each role that
an objective may ask for: bos and cls are one token, eos and sep another.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..interop.model_folder import pads, require_dense_ids, tell_of_other_tokens, untrusted
from ..interop.tokenizer_roles import keep_option
from .special_tokens import ANY_TEXT, SENTINEL, around
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
    if template != "plain":
        ends = [special.opening], [special.closing]
        backend.post_processor = framing(template, backend.get_vocab(), *ends)
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


def framing(
    template: Template, vocabulary: Mapping[str, int], opening: Sequence[str], closing: Sequence[str]
) -> processors.TemplateProcessing:
    """Say what a call of a tokenizer puts around a text, and around two.

    Args:
        template: See `train_tokenizer`; what is `plain` begins with `opening`.
        vocabulary: The ids of all tokens.
        opening: The token that opens a text, if there is one.
        closing: The token that closes it, if there is one.
    """
    before = {"end": [], "both_ends": closing}.get(template, opening)
    behind = [] if template == "plain" else closing
    kind = ":0" if template in {"plain", "both_ends"} else ":1"
    single = [*before, "$A", *behind]
    pair = [*single, f"$B{kind}", *(f"{name}{kind}" for name in behind)]
    return processors.TemplateProcessing(
        single,
        pair,
        [(name, vocabulary[name]) for name in dict.fromkeys([*before, *behind])],
    )


def fit_frame(tokenizer: PreTrainedTokenizerBase, template: Template, name: str) -> None:
    """Let a call of a tokenizer put around a text what the model learns to see there; say so if it did not.

    BERT's closes texts, after which a decoder would begin another one; GPT-2's leaves out the tokens between
    which an encoder reads. What else stands around a text (the code of a language) stays. A tokenizer of a
    class of its own becomes one of the general class: some build their frames anew when they are loaded.

    Args:
        tokenizer: It is changed, if need be.
        template: See `train_tokenizer`; whatever begins a text may stay where it is `plain`.
        name: Of the tokenizer, for what is told.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return
    opening, closing = (tokenizer.convert_ids_to_tokens(ids) for ids in frame_ids(tokenizer))
    own = before, behind = [tokenizer.convert_ids_to_tokens(ids) for ids in around(tokenizer(ANY_TEXT))]
    if template == "plain":
        opening, is_fit = before, not behind
    else:
        needed = {"end": [], "both_ends": closing}.get(template, opening)
        is_fit = set(needed) <= set(before) and set(closing) <= set(behind)
    if is_fit:
        return
    tokenizer.backend_tokenizer.post_processor = framing(template, tokenizer.get_vocab(), opening, closing)
    tokenizer.__class__ = PreTrainedTokenizerFast
    keep_option(tokenizer, "model_input_names", tokenizer.model_input_names)
    keep_option(tokenizer, "padding_side", "left" if template == "plain" else tokenizer.padding_side)
    learned = [tokenizer.convert_ids_to_tokens(ids) for ids in around(tokenizer(ANY_TEXT))]
    shown = [" ".join([*frame[0], "TEXT", *frame[1]]) for frame in (own, learned)]
    print(
        f"{name}: the tokenizer writes {shown[0]}; beside the model, it writes what that learns, {shown[1]}",
        file=sys.stderr,
        flush=True,
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
    tell_of_other_tokens(tokenizer, path)
    return tokenizer


def frame_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Give the ids that open and close a text: [CLS] and [SEP], else bos and eos, else nothing."""
    opening = tokenizer.bos_token_id if tokenizer.cls_token_id is None else tokenizer.cls_token_id
    closing = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
    return [[] if token is None else [token] for token in (opening, closing)]  # pyright: ignore[reportReturnType]
