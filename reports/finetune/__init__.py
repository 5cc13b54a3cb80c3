"""The report of a fine-tuning run."""
