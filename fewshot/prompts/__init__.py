"""From rows to prompts: templates, demonstrations, and the tokens of an answer."""
