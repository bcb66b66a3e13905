"""Learners are compiled once per configuration, and shared by the tests of a file."""

from learners import shared  # noqa: F401
