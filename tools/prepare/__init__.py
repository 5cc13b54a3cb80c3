"""A corpus prepared before any run: tokenized once, shard by shard, by a pipeline of datatrove."""
