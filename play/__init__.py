"""Try a model in the browser or in a terminal: what it can do, and how it comes to its answers."""
