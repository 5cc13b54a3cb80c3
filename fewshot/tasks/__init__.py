"""Tasks that prompts ask: choices, and answers that are written."""
