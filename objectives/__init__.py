"""What can be learned from text: objectives, the noise that they put into it, the examples they read."""
