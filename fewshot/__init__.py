"""Asking without training: tasks as templates, prompts with demonstrations, scores of answers, a report."""
