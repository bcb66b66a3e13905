"""Code shared by all commands: the command line."""
