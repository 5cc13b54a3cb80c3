"""Learning from a teacher: smaller models that keep what a larger one knows."""
