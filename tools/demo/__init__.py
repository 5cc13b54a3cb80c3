"""The demonstration: shipped recipes on text that every installation has, and a page of their reports."""
