"""The report of a distillation."""
