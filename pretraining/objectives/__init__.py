"""What can be learned, from text and from tasks: objectives, their noise, the examples that they read."""
