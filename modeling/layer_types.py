"""Layers that read everything, and layers that read what is near: sliding windows.

The window is `sliding_window` = w, and means what it does to transformers' masks. In a decoder, token i reads
the w tokens i - w < j <= i, itself included (Jiang et al., 2023, section 2: Mistral). In an encoder it reads
the 2 w + 1 tokens |i - j| <= w. Warner et al., 2024, section 2.1.2 (ModernBERT), count both sides at once:
their 128 is w = 64 here, and covers 64 tokens to the left, 64 to the right, and the token itself.
"""

LAYER_TYPES = ("full_attention", "sliding_attention")
"""What a layer may be, in transformers' words."""

SMALLEST_WINDOW = 2
"""Of a window of 1, transformers' caches would keep everything instead of nothing."""


def require_layer_types(
    layer_types: list[str] | None, num_layers: int, sliding_window: int | None, prefix: str = ""
) -> None:
    """Raise a `ValueError` unless each layer has a type, and sliding ones a window.

    Without types all layers slide if there is a window, as transformers' caches have it.
    """
    name = f"{prefix}layer_types"
    if layer_types is None:
        layer_types = [] if sliding_window is None else ["sliding_attention"] * num_layers
        num_layers = len(layer_types)
    if not set(layer_types) <= set(LAYER_TYPES):
        raise ValueError(f"{name} is {layer_types}: choose {' or '.join(LAYER_TYPES)} for each layer")
    if len(layer_types) != num_layers:
        raise ValueError(
            f"{name} has {len(layer_types)} entries, but {prefix}num_hidden_layers is {num_layers}: "
            "give each layer its type"
        )
    if "sliding_attention" in layer_types and (sliding_window or 0) < SMALLEST_WINDOW:
        raise ValueError(
            f"sliding_window is {sliding_window}, but {name} has sliding layers: "
            f"choose {SMALLEST_WINDOW} or more"
        )
