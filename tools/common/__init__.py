"""What every command uses: the command line, and pictures of learning curves."""
