"""The demonstration: what the other folders do, shown on text that every installation already has."""
