"""Text and rows: documents, tokenizers, tokenized corpora, labelled rows, whatever files they lie in."""
