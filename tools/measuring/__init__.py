"""Measurements: the speed of a system and of its parts, profiles, and the search for the fastest settings."""
