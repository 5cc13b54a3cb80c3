"""Asking without training: tasks, prompts with demonstrations, scores of answers, items in a corpus."""
