"""Files become steps: documents and labelled rows, tokenizers, tokenized corpora and their cache, batches."""
