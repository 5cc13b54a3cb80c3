"""What a run computes on: precision, sharding, compiling, threads and memory."""
