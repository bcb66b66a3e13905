"""Other RL systems: drivers that train them in their own interpreters, and comparisons of speed and learning."""
