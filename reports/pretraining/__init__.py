"""The report of a pretraining run."""
