"""The execution of a run: how its parts are connected, its threads and processes, and their numbers."""
