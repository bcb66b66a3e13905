"""The configuration of a run: its fields, checks, flags and units, and the folder that it is saved in."""
