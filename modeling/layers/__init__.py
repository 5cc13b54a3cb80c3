"""The layers of a Transformer: blocks, and what stands in them or before them."""
