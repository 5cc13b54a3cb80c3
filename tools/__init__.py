"""A folder for each command beyond the four runs."""
