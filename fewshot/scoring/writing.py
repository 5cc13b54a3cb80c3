"""Greedy generation: how a model continues a context, until a stop string or the end of the text.

Shapes: B prompts, T positions.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from ...modeling.generation.writing import before_end, read_out
from ...modeling.saved.length import ROBERTA_LIKE
from ...training.finite_numbers import require_numbers
from ..subject import Subject
from .layout import padded
from .prefix_tree import by_size
from .score_cache import AnswerCache


class StopsAt(StoppingCriteria):
    """Ends each text once it holds one of several strings behind its prompt."""

    def __init__(self, subject: Subject, stop: Sequence[str], prompt_length: int):
        self.subject, self.stop, self.prompt_length = subject, stop, prompt_length

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        """Return which texts are finished, (B,)."""
        texts = self.subject.tokenizer.batch_decode(
            input_ids[:, self.prompt_length :], skip_special_tokens=True
        )
        is_done = [any(stop in text for stop in self.stop) for text in texts]
        return torch.tensor(is_done, device=input_ids.device)


class Writer:
    """Continues contexts, with a cache.

    Args:
        subject: A decoder or a sequence-to-sequence model.
        cache: Texts by their contexts.
        stop: What ends a text; it does not belong to it.
        max_new_tokens: Tokens of a text, at most.
        tokens_at_once: Tokens of a batch, pads and what is written included.
        lead: What a sequence-to-sequence model's decoder reads before it generates.
    """

    def __init__(
        self,
        subject: Subject,
        cache: AnswerCache,
        stop: Sequence[str],
        max_new_tokens: int,
        tokens_at_once: int,
        lead: tuple[int, ...] = (),
    ):
        if subject.member == "encoder":
            raise ValueError(
                f"{subject.checkpoint.name} is an encoder, which cannot generate: use a task with choices "
                "instead"
            )
        self.subject, self.cache, self.stop = subject, cache, tuple(stop)
        self.max_new_tokens, self.tokens_at_once, self.lead = max_new_tokens, tokens_at_once, lead

    def write(self, contexts: Sequence[tuple[int, ...]]) -> list[str]:
        settings = (self.stop, self.max_new_tokens, self.lead, self.ends())
        keys = [sha256(repr((context, settings)).encode()).hexdigest()[:24] for context in contexts]
        return self.cache.get(keys, lambda numbers: self.find([contexts[number] for number in numbers]))

    def find(self, contexts: list[tuple[int, ...]]) -> Iterator[tuple[int, str]]:
        """Yield the number of each context with its continuation; those of like length are read together."""
        sizes = [len(context) + self.max_new_tokens for context in contexts]
        for batch in by_size(sizes, self.tokens_at_once):
            yield from zip(batch, self.write_batch([contexts[number] for number in batch]), strict=True)

    @torch.inference_mode()
    def write_batch(self, contexts: list[tuple[int, ...]]) -> list[str]:
        """Continue contexts, which a decoder reads behind their pads.

        An encoder reads them before their pads, since some (BART's) count positions from the left edge.
        """
        model: Any = self.subject.model
        inputs = dict[str, Any]()
        if self.subject.member == "seq2seq":
            ids, mask = padded(contexts, model.device, self.pad_id)
            begin = len(self.lead)
            inputs["decoder_input_ids"] = torch.tensor([self.lead] * len(contexts), device=model.device)
        else:
            ids, mask = (
                x.flip(1) for x in padded([own[::-1] for own in contexts], model.device, self.pad_id)
            )
            begin = ids.shape[1]
            if model.config.model_type in ROBERTA_LIKE:  # `generate` would count from 0 on
                inputs["position_ids"] = mask.cumsum(1) * mask + model.config.pad_token_id
        written = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
            num_beams=1,
            pad_token_id=self.pad_id,
            eos_token_id=self.ends(),
            logits_processor=LogitsProcessorList([RequireNumbers()]),
            stopping_criteria=StoppingCriteriaList([StopsAt(self.subject, self.stop, begin)]),
            **inputs,
        )
        rows = [before_end(row, self.ends() or []) for row in written[:, begin:].cpu().numpy()]
        return [cut_at(text, self.stop) for text in read_out(self.subject.tokenizer, rows)]

    def ends(self) -> list[int] | None:
        """Return the ids that end a text: the model's, the tokenizer's, and stop strings that are special."""
        own: Any = self.subject.model.generation_config.eos_token_id  # pyright: ignore[reportOptionalMemberAccess]
        tokenizer: Any = self.subject.tokenizer
        vocabulary, special = tokenizer.get_vocab(), set(tokenizer.all_special_ids)
        ids = {tokenizer.eos_token_id, *(own if isinstance(own, list) else [own])}
        ids |= {vocabulary[stop] for stop in self.stop if vocabulary.get(stop) in special}
        return sorted(ids - {None}) or None

    @property
    def pad_id(self) -> int:
        """What fills up a batch; masks hide it."""
        tokenizer: Any = self.subject.tokenizer
        ids = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        return next(token_id for token_id in ids if token_id is not None)


class RequireNumbers(LogitsProcessor):
    """Refuses scores that are no numbers, of which the first token would be the best one."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        require_numbers(scores)
        return scores


def cut_at(text: str, stop: Sequence[str]) -> str:
    r"""Cut a text where the first of several strings begins.

    >>> cut_at(" 57\\n\\nQ: what", ["\\n", "Q:"])
    ' 57'
    """
    return text[: min([len(text), *(text.index(each) for each in stop if each in text)])]
