"""Text to token ids and back: tokenizers, their special tokens, words and sentences."""
