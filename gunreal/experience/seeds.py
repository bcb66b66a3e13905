"""Random streams that do not overlap.

Agents use seeds of three words, which NumPy treats like seeds with a fourth word of 0. Every other use of the run's
seed has its own fourth word.
"""

from __future__ import annotations

EVALUATION, ACTIONS, MINIBATCHES, SCHEDULER, RECORDINGS = 1, 2, 3, 4, 5
