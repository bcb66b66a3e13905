import networks
import pytest
from keras import layers

from gunreal.experience.spec import Spec
from gunreal.learning.contract import FRAMES
from gunreal.learning.registry import named
from gunreal.testing import check_network

VECTOR = Spec((3,), 1, "float32", num_actions=2, t_max=4)


class IdleCell(layers.GRUCell):
    def call(self, inputs, states, training=False):
        output, _ = super().call(inputs, states, training)
        return output, states


class KeepsItsState(networks.Strided):
    def cell(self, seed):
        return IdleCell(self.hidden)


class HasANoisyCell(networks.Strided):
    def cell(self, seed):
        return layers.GRUCell(self.hidden, dropout=0.5, name="noise")


class TakesChannelsForRows(networks.Plain):
    def body(self, x, seed):
        return layers.Conv2D(4, 2, 2, data_format="channels_last")(x)


@pytest.mark.parametrize("name", ["small", "large", "lstm", "impala", "mlp"])
def test_built_in_networks_keep_the_contract(name):
    check_network(named(name, hidden=16))


def test_networks_for_vectors_and_with_a_cell_of_their_own():
    check_network(named("mlp", hidden=16), VECTOR)
    check_network(networks.Strided, FRAMES._replace(vectors=2), hidden=16, filters=3)


def test_a_network_that_uses_the_numbers_beside_an_image_itself():
    check_network(networks.Compass, hidden=16)
    with pytest.raises(AssertionError, match=r"no gradient of the loss reaches torso/\d/kernel"):
        check_network(networks.Adrift)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (networks.NoArchitecture, "does not inherit from gunreal.Architecture"),
        (networks.Unannotated, "Unannotated.hidden has no effect as an option; annotate it"),
        (networks.Misnamed, "name is 'my network'"),
        (networks.NoNumber, r"state\(\) is None"),
        (networks.Miscounted, r"the cell of the strided network has 256 floats of state, but state\(\) is 512"),
        (networks.Normalized, "torso/1 has untrained state"),
        (networks.Noisy, r"torso has noise \(noise\); leave it out"),
        (HasANoisyCell, r"has noise \(noise\); leave it out"),
        (networks.Seedless, "networks with different seeds are equal"),
        (networks.Unrepeatable, "two networks with the same seed differ in torso/1/kernel"),
        (networks.Renamed, "names of the weights change"),
        (networks.FixedLayout, "with the layout nchw: "),
        (TakesChannelsForRows, "torso/0/kernel has another shape with the layout nchw"),
        (KeepsItsState, "the cell does not change its state"),
        (networks.Infinite, "is not finite"),
        (networks.Mixing, "depend on the others in the batch"),
        (networks.Unflat, r"^top\(\) of the strided network returned the shape \(None, 1, 8\); return one"),
        (networks.Sequences, r"^body\(\) of .* returned the shape \(None, \d+, 4\); return .* \[N, Fc\] or images$"),
        (networks.Twofold, r"^body\(\) of the strided network returned a list; return one"),
        (networks.Unbatched, r"makes \d+ outputs of 16 observations: keep the first axis"),
        (networks.Dead, "no gradient of the loss reaches torso/0/kernel"),
    ],
)
def test_each_broken_rule_is_named(network, message):
    with pytest.raises(AssertionError, match=message) as error:
        check_network(network)
    assert "\n" not in str(error.value)


def test_a_network_without_a_body():
    with pytest.raises(NotImplementedError, match="NoBody has no first layers; define body"):
        check_network(networks.NoBody)


def test_a_refusal_passes_through():
    with pytest.raises(ValueError, match="for other observations"):
        check_network(networks.Refusing)


@pytest.mark.parametrize("name", ["small", "impala"])
def test_a_network_for_images_is_not_checked_with_vectors(name):
    with pytest.raises(AssertionError, match="takes_images is True, but the spec has vectors of 3"):
        check_network(named(name), VECTOR)
