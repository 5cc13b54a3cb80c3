"""What every folder may use, and which imports none: messages, Markdown, weights read with care."""
