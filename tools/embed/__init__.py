"""Vectors of texts, and the files that hold them."""
