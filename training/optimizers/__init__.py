"""What changes weights: optimizers, schedules, averages."""
