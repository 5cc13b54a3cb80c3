"""Tasks: what is read from rows, learned, predicted and scored."""
