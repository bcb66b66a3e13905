"""`gunreal check`: the contracts of plug-ins from the command line."""

import pytest

from gunreal import check
from gunreal.config.schema import ConfigError
from gunreal.tasks.value_replay import ValueReplay
from gunreal.testing import check_task


def run(*words):
    return check.main(["gunreal check", *words])


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("vr", "weight=0.5", "--network", "mlp"), "task"),
        (("small", "hidden=8"), "network"),
        (("a3c",), "objective"),
    ],
)
def test_what_keeps_its_contract(capsys, words, kind):
    assert run(*words) == 0
    assert capsys.readouterr().out == f"{words[0]} keeps the contract of {kind}s\n"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("broken_tasks:NoTable", "task 'vr': targets() returns a NoneType; return a dict of arrays"),
        ("broken_tasks:BadFeatures", "features is 'pixels': choose one of hidden, conv, both"),
        ("objectives:Unmasked", "loss() depends on steps whose mask is 0: use masked_mean"),
    ],
)
def test_a_broken_rule_is_one_line(capsys, name, line):
    assert run(name) == 1
    assert capsys.readouterr().err == f"gunreal: {name}: {line}\n"


def test_a_class_that_cannot_be_loaded_is_called_what_it_is():
    with pytest.raises(ConfigError, match="^network 'networks:Unannotated': .* no effect"):
        run("networks:Unannotated")


def test_a_task_with_a_network_of_ones_own():
    with pytest.raises(ValueError, match="too small for the large network"):
        check_task(ValueReplay, network="large")
