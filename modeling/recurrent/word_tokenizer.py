"""The tokenizer of models that read words: bytes, and spaces between words (`recurrent/words.py`)."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from .words import FIRST_BYTE, PAD

PAD_NAME = "[PAD]"


def word_tokenizer(model_max_length: int | None = None) -> PreTrainedTokenizerFast:
    """Build the tokenizer that writes every text as its bytes, which are the same for all models.

    `truncation=True` cuts to `model_max_length` bytes.

    >>> word_tokenizer()("a b")["input_ids"]
    [98, 33, 99]
    """
    vocabulary = {PAD_NAME: PAD} | {name: FIRST_BYTE + byte for byte, name in bytes_to_unicode().items()}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(" ", "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD_NAME,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # a word "[PAD]" is a word
        **({} if model_max_length is None else {"model_max_length": model_max_length}),
    )
