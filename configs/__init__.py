"""Recipes and model presets as data, and the loader that reads them."""
