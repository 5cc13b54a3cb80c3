"""What a configuration must be: one clear line for each field that cannot be as it is."""


def require_at_least(smallest: int, name: str, value: int) -> None:
    """Raise a `ValueError` if the field `name` is below `smallest`."""
    if value < smallest:
        raise ValueError(f"{name} is {value}: choose {smallest} or more")


def require_probability(name: str, value: float) -> None:
    """Raise a `ValueError` if the field `name` is not a probability below one."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}: choose a probability from 0 up to, but not including, 1")


def require_buckets(num_buckets: int, max_distance: int) -> None:
    """Raise a `ValueError` unless each direction has exact buckets of distances, and wide ones after them."""
    require_at_least(4, "relative_attention_num_buckets", num_buckets)
    if max_distance <= num_buckets // 2:
        raise ValueError(
            f"relative_attention_max_distance is {max_distance}: choose more than half of "
            f"relative_attention_num_buckets ({num_buckets}), as a bucket each has every smaller distance"
        )


def equal_share(hidden_size: int, num_heads: int) -> int | None:
    """Divide the model's width among heads; `None` if that leaves a rest."""
    return None if num_heads < 1 or hidden_size % num_heads else hidden_size // num_heads


def require_heads(
    hidden_size: int, head_dim: int | None, num_heads: int, num_key_value_heads: int, prefix: str = ""
) -> None:
    """Raise a `ValueError` unless heads have a width, and key-value heads divide the heads."""
    if head_dim is None:
        raise ValueError(
            f"hidden_size ({hidden_size}) must be a multiple of {prefix}num_attention_heads ({num_heads}): "
            f"choose one of {divisors(hidden_size)}, or give {prefix}head_dim"
        )
    require_at_least(1, f"{prefix}num_attention_heads", num_heads)
    require_at_least(1, f"{prefix}head_dim", head_dim)
    if num_key_value_heads < 1 or num_heads % num_key_value_heads:
        raise ValueError(
            f"{prefix}num_attention_heads ({num_heads}) must be a multiple of {prefix}num_key_value_heads "
            f"({num_key_value_heads}): choose one of {divisors(num_heads)}"
        )


def require_pairs(head_dim: int, partial_rotary_factor: float, rotary_dim: int) -> None:
    """Raise a `ValueError` unless rotary positions have pairs of channels to turn."""
    if rotary_dim not in range(2, head_dim + 1, 2):
        raise ValueError(
            f"head_dim ({head_dim}) * partial_rotary_factor ({partial_rotary_factor}) is {rotary_dim}, but "
            "rotary positions turn pairs of a head's channels: choose an even head width and a factor of at "
            "most 1, or another position_embedding_type"
        )


def require_even(name: str, width: int) -> None:
    """Raise a `ValueError` unless sinusoidal positions have pairs of channels."""
    if width % 2:
        raise ValueError(f"{name} ({width}) must be even, as sinusoidal positions pair a sine with a cosine")


def divisors(number: int) -> str:
    """List what divides `number` and could be a number of heads, for an error message."""
    return ", ".join(str(divisor) for divisor in range(1, min(number, 256) + 1) if number % divisor == 0)
