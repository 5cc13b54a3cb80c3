"""Learning a task: tasks, their examples and objectives, metrics, runs, predictions."""
