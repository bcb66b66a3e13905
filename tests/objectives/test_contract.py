"""`check_objective`: the built-in objectives keep the contract, and each broken rule is one line."""

import importlib
import sys

import objectives
import pytest

from gunreal.config.objective import load_objective
from gunreal.config.schema import Config
from gunreal.objectives.a3c import A3c
from gunreal.objectives.ppo import Ppo
from gunreal.testing import check_objective


@pytest.mark.parametrize(
    "objective", [Ppo(), A3c(), A3c("epsilon"), objectives.Penalized(penalty=2.0), objectives.Phased()]
)
def test_these_keep_the_contract(objective):
    check_objective(objective)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (objectives.NoObjective, "does not inherit from gunreal.Objective"),
        (objectives.Misnamed, "name is 'my objective': choose an identifier"),
        (objectives.Unannotated, "Unannotated.penalty has no effect as an option; annotate it"),
        (objectives.NoRate, r"settings\(\) has no number for learning_rate, min_batch: return"),
        (objectives.NoUses, r"uses\(\) is 3: return Uses"),
        (objectives.NoPhase, r"phase\(\) is 2: return Phase\(batches, epochs\)"),
        (objectives.NoPhaseLoss, r"^phase_loss\(\) failed: NotImplementedError: NoPhaseLoss has no phase_loss"),
        (objectives.NoBonuses, r"the metrics of phase_loss\(\) lack bonus_return_mean, bonus_return_deviation"),
        (objectives.Replaying, "only the built-in dqn has a program that draws from the replay"),
        (objectives.NoInputs, r"^inputs\(\) failed: NotImplementedError: NoInputs has no inputs\(self, rollouts\)"),
        (objectives.Infinite, "input 'more' is not finite"),
        (objectives.Double, "input 'more' is float64: use float32 or int32"),
        (objectives.Failing, r"^loss\(\) failed: KeyError: 'nothing'"),
        (objectives.Moments, r"the metrics of loss\(\) lack return_mean, return_deviation"),
        (objectives.Unmasked, r"loss\(\) depends on steps whose mask is 0"),
        (objectives.Dividing, r"loss\(\) is not finite when every mask is 0"),
        (objectives.Valueless, r"no gradient of loss\(\) reaches value"),
    ],
)
def test_a_broken_rule_is_one_line(objective, message):
    with pytest.raises(AssertionError, match=message) as caught:
        check_objective(objective)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (objectives.OfNumPyOnly, r"^inputs\(\) failed: ConcretizationTypeError"),
        (objectives.OtherInJax, "input 'more' differs between JAX and NumPy"),
    ],
)
def test_inputs_are_compiled_for_device_runs(objective, message):
    pytest.importorskip("jax")
    with pytest.raises(AssertionError, match=message):
        check_objective(objective)


def test_an_objective_that_is_loaded_again_is_the_new_one(tmp_path, monkeypatch):
    """As in a notebook, after its file has changed."""
    file = tmp_path / "changing_objective.py"
    file.write_text("from gunreal.objectives.ppo import Ppo\n\n\nclass Mine(Ppo):\n    name = 'mine'\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = Config(objective="changing_objective:Mine")
    assert load_objective(config).name == "mine"
    file.write_text(file.read_text().replace("'mine'", "'other'"))
    importlib.reload(sys.modules["changing_objective"])
    assert load_objective(config).name == "other"


def test_an_option_out_of_range_is_refused():
    with pytest.raises(AssertionError, match="ppo.clip is 0.0, but must be above 0"):
        check_objective(Ppo(clip=0.0))
