"""Trained agents for gunreal: a folder for each, which `gunreal.load("zoo:NAME")` opens."""
