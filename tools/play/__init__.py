"""Try a model in the browser: what it can do, and how it comes to its answers."""
