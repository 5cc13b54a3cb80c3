"""Examples to steps: planned, packed, dealt out to processes, and loaded."""
