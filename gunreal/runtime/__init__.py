"""How a run goes: the wiring of its parts, its threads and processes, and their number."""
