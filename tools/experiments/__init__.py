"""Experiments of the papers: their settings, the runs that they need, and their reports."""
