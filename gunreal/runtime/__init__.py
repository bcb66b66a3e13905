"""The execution of a run: the wiring of its parts, its threads and processes, and the scheduler."""
