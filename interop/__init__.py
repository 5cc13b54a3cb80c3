"""In and out: stock checkpoints, certificates, examinations, the Hub."""
