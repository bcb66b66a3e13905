"""Scores on Atari games: which systems are trained on which games, and what their scores come to."""
