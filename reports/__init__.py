"""What a finished run is worth, read from its folder: scores, verdicts, charts, and the page of a report."""
