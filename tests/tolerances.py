"""How far numbers may differ that are computed in another order."""

CLOSE = {"rtol": 1e-4, "atol": 2e-5}
"""States, logits and losses of small models in single precision."""
