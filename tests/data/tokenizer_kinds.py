"""Twelve kinds of tokenizers, as the models of the field have them, learned from a few texts."""

import json
from collections.abc import Callable, Mapping

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tercet.data.tokenizers.tokenizer import train_tokenizer

TEXTS = {
    "english": "The ferry left at noon. Nobody waved, it didn't matter!\nA boy counted 1,250 gulls (or so).",
    "code": "def area(w, h):\n    return w * h\n\nprint(area(2, 3));\nclass Box:\n\tpass  # done.\n",
    "list": "Notes:\n\n- first item.\n- second item;\n\n1. One.\n2. Two.\n\n\nDone.",
    "quotation": '"Is it?" he asked. (It was.) Then... »Ja.« “Well?”  Two  spaces. ',
    "chinese": "海风很大。船停在码头。“孩子们在数海鸥\uff01”你也来吗\uff1f我们一起走。",
    "japanese": "港は静かです。船が来ました。「猫がカフェで寝ています。」寒いですね。",
    "thai": "แมวนอนอยู่บนเรือ วันนี้อากาศหนาว แม่ทำขนมปัง",
    "arabic": "البحر هادئ اليوم. وصلت السفينة! هل ستأتي معنا؟ نعم.",
    "others": " Größe naïve café. I\u0301t \U0001f600\U0001f3fd ok. \u200bZero.\r\nLine.\n",
}
"""Texts whose sentences end in many ways."""
CORPUS = [text for text in TEXTS.values() for _ in range(4)]

BY_THREES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
"""How models since GPT-4 cut: line ends stay with the marks before them, and digits come in threes."""


def without_cuts(prepends: bool) -> PreTrainedTokenizerFast:
    """Pair encoding of SentencePiece, which cuts nothing beforehand (Llama 2; without a prefix: Gemma)."""
    space = normalizers.Replace(" ", "▁")
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space] if prepends else [space])
    backend.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    learn(backend, trainers.BpeTrainer(vocab_size=600, special_tokens=names, show_progress=False))
    backend = Tokenizer.from_str(json.dumps(json.loads(backend.to_str()) | {"pre_tokenizer": None}))
    return wrap(backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def of_bytes(pre_tokenizer: pre_tokenizers.PreTokenizer) -> PreTrainedTokenizerFast:
    """Pair encoding of bytes behind a way to cut."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 600, "special_tokens": ["<|end|>"], "initial_alphabet": alphabet}
    learn(backend, trainers.BpeTrainer(**options, show_progress=False))
    return wrap(backend, eos_token="<|end|>")


def as_bytes(**options: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})


def metaspace() -> PreTrainedTokenizerFast:
    """Pieces of a unigram model, with a space in front of every word and text (T5, XLM-R)."""
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    options = {"vocab_size": 400, "special_tokens": ["<s>", "</s>", "<unk>"], "unk_token": "<unk>"}
    learn(backend, trainers.UnigramTrainer(**options, show_progress=False))
    return wrap(backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def learn(backend: Tokenizer, trainer: object) -> None:
    backend.train_from_iterator(CORPUS, trainer)


def wrap(backend: Tokenizer, **roles: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, **roles)


KINDS: Mapping[str, Callable[[], PreTrainedTokenizerFast]] = {
    "wordpiece": lambda: train_tokenizer(CORPUS, "wordpiece", 500),
    "wordpiece, lower case": lambda: train_tokenizer(CORPUS, "wordpiece", 500, lowercase=True),
    "byte_bpe": lambda: train_tokenizer(CORPUS, "byte_bpe", 500),
    "unigram": lambda: train_tokenizer(CORPUS, "unigram", 500),
    "characters": lambda: train_tokenizer(CORPUS, "characters", 500),
    "words": lambda: train_tokenizer(CORPUS, "words", 900),
    "pairs with a prefix": lambda: without_cuts(prepends=True),
    "pairs without a prefix": lambda: without_cuts(prepends=False),
    "bytes by threes": lambda: of_bytes(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(BY_THREES), "isolated"), as_bytes(use_regex=False)]
        )
    ),
    "bytes with a prefix": lambda: of_bytes(as_bytes(add_prefix_space=True)),
    "bytes without cuts": lambda: of_bytes(as_bytes(use_regex=False)),
    "metaspace": metaspace,
}
