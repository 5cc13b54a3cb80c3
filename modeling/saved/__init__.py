"""Saved models: their folders, tokenizers and code, and what a run left around them."""
