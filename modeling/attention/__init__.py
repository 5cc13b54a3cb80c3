"""Attention: patterns, scores, masks, the packed layout, and the kernels that compute it."""
