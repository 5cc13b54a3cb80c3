"""The doctor: examinations of any model that transformers can load."""
