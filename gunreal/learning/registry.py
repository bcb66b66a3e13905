"""Finds networks by name and sets their options."""

from __future__ import annotations

import dataclasses
from typing import Any

from gunreal.config import plugins
from gunreal.config.fields import AUTO
from gunreal.config.schema import FIELDS, Config, ConfigError, is_auto
from gunreal.envs.apart import examine
from gunreal.envs.raw import Raw
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.learning.architecture import Architecture

NETWORK = plugins.Kind("network", "gunreal.networks", Architecture, (AUTO,))


def named(name: str, **options: Any) -> Architecture:
    """A network by its name in the entry-point group `gunreal.networks`, or "module:Class".

    Raises:
      ConfigError: the network or an option is unknown, a value has the wrong type, or a plug-in cannot be imported.
    """
    network: Architecture = plugins.build(NETWORK, plugins.load_class(NETWORK, name), options)
    return network


def load_network(config: Config, spec: Spec) -> Architecture:
    """The configured network. Its fields with the names of settings have the values of these settings.

    Raises:
      ConfigError: as `named`, or the network does not fit the observations.
    """
    fields = {field.name for field in dataclasses.fields(_load_class(config, config.network))}
    if reserved := sorted(fields & FIELDS.keys() & config.network_args.keys()):
        raise ConfigError(f"network_args has {reserved[0]}, which is a setting of its own; use --{reserved[0]}")
    settings = {field: getattr(config, field) for field in fields & FIELDS.keys()}
    network = named(config.network, **settings, **config.network_args)
    if network.takes_images and not spec.is_image:
        memory = ", or one of your own with a cell, which gives memory" if network.state() else ""
        raise ConfigError(
            f"the {network.name} network needs images, not vectors of {spec.frame[0]}; use --network mlp{memory}"
        )
    try:
        network.check(spec)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return network


def interface(config: Config) -> tuple[Spec, Raw, Config]:
    """Opens `config.env` once.

    Returns:
      The interface of the run, what the environment itself observes, and the configuration, in which only settings of
      the machine are still "auto".

    Raises:
      ConfigError: the environment or the network cannot be used.
    """
    if not is_auto(config, "network"):
        _load_class(config, config.network)  # before an environment is opened
    spec, raw, config = examine(config)
    return spec._replace(state=load_network(config, spec).state()), raw, config


def _load_class(config: Config, name: str) -> type[Architecture]:
    point = plugins.available(NETWORK).get(name)
    if not (point.value if point else name).startswith("gunreal."):
        devices.select_for(config)  # the file of a plug-in may import Keras, which loads the selected backend
    return plugins.load_class(NETWORK, name)
