"""Learning from raw text: corpora, tokenizers, objectives, and the run that joins them."""
