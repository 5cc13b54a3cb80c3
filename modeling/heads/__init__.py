"""Heads: of pretraining and of tasks, their labels and losses, and the models that end in those of tasks."""
