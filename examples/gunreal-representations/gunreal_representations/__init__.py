"""Published tasks that learn representations, one a file."""
