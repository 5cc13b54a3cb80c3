"""The Transformers: a module each, imported when one of its models is asked for."""
