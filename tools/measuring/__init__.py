"""Measuring: the speed of a configuration and of its parts, where time goes, and the search for fast settings."""
