"""Comparison of systems on Atari games: planned runs, reference scores, aggregate scores and reports."""
