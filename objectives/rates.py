"""The numbers of an objective that a recipe can get wrong."""


def check_rate(name: str, value: float) -> float:
    """Return a share of tokens or pairs that is neither nothing nor everything, or refuse it by name."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}, but must lie between 0 and 1, both excluded: try 0.15")
    return value


def check_share(name: str, value: float) -> float:
    """Return a share that may also be 0 or 1, or refuse it by name."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value}, but must lie between 0 and 1, both included: try 0.1")
    return value
