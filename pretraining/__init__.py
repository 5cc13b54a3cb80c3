"""Learning from raw text: objectives, the text, tokenizer and model of a run, and the run that joins them."""
