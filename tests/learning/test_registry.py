import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from trained import short_run
from wording import MEAN

import gunreal
from gunreal.config.checks import check
from gunreal.config.resolve import Facts, resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.experience.spec import Spec
from gunreal.learning import registry
from gunreal.learning.convolutional import Large, Recurrent, Small
from gunreal.learning.impala import Impala
from gunreal.learning.mlp import Perceptron
from gunreal.records import checkpoint

IMAGES = Spec((1, 84, 84), 4, "uint8", num_actions=3)
VECTOR = Spec((3,), 1, "float32", num_actions=2)


def load(spec=IMAGES, **options):
    return registry.load_network(resolved(Config(**options), Facts(is_image=spec.is_image)), spec)


def test_built_in_networks_get_the_settings():
    assert load() == Small() and load(VECTOR) == Perceptron()
    assert load(network="large", network_args={"first_stride": 2}, hidden=64) == Large(hidden=64, first_stride=2)
    assert load(network="lstm", hidden=8).state() == 16 and load(network="lstm") == Recurrent()
    assert load(network="impala", network_args={"width": 2}) == Impala(width=2)
    assert load(network="networks:Strided", network_args={"filters": 3}, hidden=5).filters == 3


@pytest.mark.parametrize("network", [Large(first_stride=2), Impala(width=2)])
def test_a_class_becomes_its_name(network):
    """A field with the name of a setting gets its value."""
    config = Config(network=type(network), network_args={name: 2 for name in vars(network) if name != "hidden"})
    check(config)
    assert config.network == f"{type(network).__module__}:{type(network).__name__}"
    assert registry.load_network(config, IMAGES) == network


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        (
            IMAGES,
            {"network": "smal"},
            f"unknown network 'smal'; available: impala, large, lstm, .*; {MEAN} small\\?$",
        ),
        (IMAGES, {"network_args": {"hidden": 2}}, "network_args has hidden, .*use --hidden"),
        (
            IMAGES,
            {"network": "large", "network_args": {"first_stride": 5}},
            "large.first_stride is 5, but must be",
        ),
        (VECTOR, {"network": "small"}, "the small network needs images, not vectors of 3; use --network mlp$"),
        (VECTOR, {"network": "lstm"}, "use --network mlp, or one of your own with a cell, which gives memory$"),
        (Spec((1, 10, 84), 4, "uint8", 3), {"network": "large"}, "too small for the large network; use larger frames"),
        (IMAGES, {"network": "networks:Refusing"}, "it is for other observations"),
    ],
)
def test_mistakes_are_one_line_that_names_the_fix(spec, options, message):
    with pytest.raises(ConfigError, match=message) as error:
        load(spec, **options)
    assert "\n" not in str(error.value)


def test_built_in_networks_load_no_framework():
    code = (
        "import sys; from gunreal.learning.registry import named\n"
        "for name in ('small', 'large', 'lstm', 'mlp', 'impala'): named(name).state()\n"
        "assert not {'keras', 'tensorflow', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:] = {sys.path}\n{code}"], check=True)


def test_the_backend_is_selected_before_the_file_of_a_plug_in_is_imported(tmp_path):
    pytest.importorskip("jax")
    (tmp_path / "my_net.py").write_text("import keras\nfrom networks import Plain as Net\n")
    code = (
        "from gunreal import Config; from gunreal.learning import registry; from gunreal.experience.spec import Spec\n"
        f"registry.load_network(Config(network='my_net:Net', backend='jax'), {IMAGES})\n"
        "import keras; assert keras.backend.backend() == 'jax', keras.backend.backend()"
    )
    path = [str(tmp_path), *sys.path]
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:] = {path}\n{code}"], check=True)


def test_a_network_of_ones_own_is_trained_saved_and_loaded(tmp_path):
    """Its layers have no names, and its cell is no LSTM."""
    trained = short_run(
        tmp_path, "own", steps=200, network="networks:Strided", network_args={"stride": 12}, tasks=("pc",)
    )
    names = trained.learner.network.names
    assert {"torso/0/kernel", "torso/top/kernel", "torso/2/recurrent_kernel"} <= set(names)
    assert trained.spec.state == 32
    again = gunreal.load(trained.path)
    assert checkpoint.weights_sha256(again.learner.get_state()) == trained.metrics[-1]["weights_sha256"]
    np.testing.assert_array_equal(again.evaluate(2), trained.evaluate(2))
    other = dataclasses.replace(again.config, network_args={"stride": 12, "filters": 5})
    with pytest.raises(ConfigError, match="is not a checkpoint"):
        _ = gunreal.Run(again.path, other).learner
