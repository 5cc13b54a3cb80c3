"""Examinations of a tokenizer beside its model: do their vocabularies, special tokens and lengths agree?"""

from transformers import PreTrainedTokenizerBase

from .examined_model import ExaminedModel, ids_of
from .finding import Finding, listed

ROLES = ("pad", "bos", "eos", "sep", "cls", "mask", "unk", "decoder_start")
"""Special tokens that configurations and tokenizers give an id."""

PADDED_TO = 128
"""Tables of embeddings are often padded to a multiple of this, for speed."""

UNLIMITED = 10**9
"""A tokenizer that was told no longest length reports more than this."""


def vocabulary(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """Every token has a row in the table of embeddings, and nearly every row a token."""
    last, rows = max(tokenizer.get_vocab().values()), examined.rows
    measured = f"the last token has id {last:,}, the embedding matrix has {rows:,} rows"
    if last >= rows:
        return Finding(
            "failed", measured, f"model.resize_token_embeddings({last + 1}), then train the new rows"
        )
    if rows > -(-(last + 1) // PADDED_TO) * PADDED_TO:
        return Finding(
            "warning", measured, "check whether this is the tokenizer that the model was trained with"
        )
    return Finding("ok", measured)


def needed_tokens(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """There is a token to pad with, and one to mask with where hidden tokens are predicted."""
    if predicts_hidden_tokens(examined) and tokenizer.mask_token is None:
        return Finding(
            "failed",
            "the model predicts masked tokens, but the tokenizer has no mask token",
            "set tokenizer.mask_token to the token that the model was trained with",
        )
    if tokenizer.pad_token is None:
        return Finding(
            "warning",
            "the tokenizer has no pad token: texts of different lengths cannot be batched",
            "tokenizer.add_special_tokens({'pad_token': '[PAD]'}), and model.resize_token_embeddings",
        )
    return Finding("ok", "all there")


def predicts_hidden_tokens(examined: ExaminedModel) -> bool:
    """Tell whether a model is an encoder that ends in the vocabulary."""
    return examined.member == "encoder" and examined.model.get_output_embeddings() is not None


def end_and_padding(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """The token that ends a text is not the one that pads: where pads are not learned, neither is the end."""
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    if pad is None or end is None:
        return Finding("not applicable", "the tokenizer lacks one of both")
    if pad != end:
        return Finding("ok", f"pad is {pad}, eos {end}")
    return Finding(
        "warning",
        f"pad and eos are both {tokenizer.eos_token!r} ({end})",
        "before training, add a separate pad token: if eos is ignored in the loss, the model never learns "
        "to end a text",
    )


def special_ids(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """Configuration, generation configuration and tokenizer mean the same ids, which the table has."""
    sources = {
        "config": examined.config,
        "generation config": examined.model.generation_config if examined.model.can_generate() else None,
        "tokenizer": tokenizer,
    }
    wrong = []
    for role in ROLES:
        ids = {source: ids_of(owner, f"{role}_token_id") for source, owner in sources.items()}
        told = {source: found for source, found in ids.items() if found}
        said = ", ".join(f"{source} {listed(map(str, found))}" for source, found in told.items())
        if told and not set.intersection(*told.values()):
            wrong.append(f"{role}: {said}")
        elif any(not 0 <= number < examined.rows for number in set().union(*told.values())):
            wrong.append(f"{role} outside the embedding matrix: {said}")
    if not wrong:
        return Finding("ok", "the same in all files")
    return Finding(
        "failed", "; ".join(wrong), "set them everywhere to the values that the model was trained with"
    )


def longest_input(examined: ExaminedModel, tokenizer: PreTrainedTokenizerBase) -> Finding:
    """Truncation cuts to no more tokens than the model has positions."""
    positions = getattr(examined.config, "max_position_embeddings", None)
    if positions is None:
        return Finding("not applicable", "the model has no maximum length")
    remedy = f"tokenizer.model_max_length = {positions}"
    if tokenizer.model_max_length > UNLIMITED:
        return Finding("warning", f"texts are not truncated, the model has {positions:,} positions", remedy)
    measured = (
        f"texts are truncated to {tokenizer.model_max_length:,} tokens, the model has {positions:,} positions"
    )
    if tokenizer.model_max_length > positions:
        return Finding("failed", measured, remedy)
    return Finding("ok", measured)


TOKENIZER = (vocabulary, needed_tokens, end_and_padding, special_ids, longest_input)
