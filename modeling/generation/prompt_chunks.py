"""Prompts in chunks (`prefill_chunk_size`), which transformers cuts as those of decoders alone.

Of a model with an encoder it cuts `attention_mask`, which is the source's, to the length of the target.
"""

from transformers import GenerationConfig


def refuse_prompt_chunks(generation_config: GenerationConfig) -> None:
    """Raise a `ValueError` if a sequence-to-sequence model is to read the target's beginning in chunks."""
    if generation_config.prefill_chunk_size is not None:
        raise ValueError(
            f"prefill_chunk_size is {generation_config.prefill_chunk_size}, but transformers cuts prompts of "
            "decoders only, and would cut the mask of a source: leave it out"
        )
