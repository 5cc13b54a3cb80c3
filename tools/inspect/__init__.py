"""Look inside a Transformer, Tercet's or stock: attention, heads, states, each beside a baseline."""
