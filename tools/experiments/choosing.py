"""Chooses an experiment, its settings and its games by their names on the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from experiments.table import Experiment, GamesExperiment
from gunreal.config.schema import ConfigError, close_match


def choose(known: Mapping[str, Experiment], name: str, settings: str) -> Experiment:
    """Returns the experiment with the listed settings, or with all of them."""
    if name not in known:
        raise ConfigError(f"unknown experiment {name!r}{close_match(name, known)}; available: {', '.join(known)}")
    experiment = known[name]
    chosen = settings.split(",") if settings else list(experiment.settings)
    unknown = next((setting for setting in chosen if setting not in experiment.settings), None)
    if unknown is not None:
        raise ConfigError(f"{name} has no setting {unknown!r}; available: {', '.join(experiment.settings)}")
    return dataclasses.replace(experiment, settings={setting: experiment.settings[setting] for setting in chosen})


def on_games(experiment: Experiment, games: str, env: str) -> Experiment:
    """Returns the experiment on the listed games, or on all of its games."""
    if not isinstance(experiment, GamesExperiment):
        raise ConfigError(f"{experiment.name} does not use several games; choose an environment with --env")
    if env:
        raise ConfigError(f"{experiment.name} uses several games; choose them with --games instead of --env")
    chosen = games.split(",") if games else list(experiment.games)
    for game in chosen:
        if game not in experiment.games:
            raise ConfigError(f"{experiment.name} has no game {game!r}; available: {', '.join(experiment.games)}")
    return dataclasses.replace(experiment, games={game: experiment.games[game] for game in chosen})
