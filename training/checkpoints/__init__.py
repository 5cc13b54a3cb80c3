"""What a run keeps to go on from, and its final and intermediate weights."""
