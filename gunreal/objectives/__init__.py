"""Objectives: what the network learns from the steps of the agents, besides the auxiliary tasks."""
