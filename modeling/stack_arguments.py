"""What the models are called with: the checks of arguments that they share, and what is meant for kernels."""

from typing import Any

from torch import Tensor


def require_tokens(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """Return whichever of the two is given.

    Raises:
        ValueError: If both are, or none is.
    """
    tokens = input_ids if inputs_embeds is None else inputs_embeds
    if tokens is None or (input_ids is not None and inputs_embeds is not None):
        raise ValueError("give either input_ids or inputs_embeds: exactly one of them")
    return tokens


def refuse_output_positions(arguments: dict[str, Any], reader: str) -> None:
    """Raise a `ValueError` if `output_positions` are given to a model that needs all states."""
    if arguments.get("output_positions") is not None:
        raise ValueError(
            f"output_positions are given to {reader}, which needs all hidden states: leave them out, or "
            f"call the encoder or the decoder alone"
        )


def kernel_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Keep what is meant for the attention kernel: the model itself has taken up layout and recording."""
    taken = {
        "cu_seq_lens_q",
        "cu_seq_lens_k",
        "max_length_q",
        "max_length_k",
        "output_hidden_states",
        "use_cache",
    }
    return {name: value for name, value in arguments.items() if name not in taken}
