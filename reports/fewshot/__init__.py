"""The report of an evaluation with prompts."""
