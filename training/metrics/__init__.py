"""Scores of predictions, one definition each, and how far a score can be trusted."""
