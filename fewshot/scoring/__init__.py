"""How likely each kind of model finds an answer, and what it writes."""
