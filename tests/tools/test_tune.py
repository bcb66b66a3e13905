from __future__ import annotations

import dataclasses
import math
from argparse import Namespace

import numpy as np
import pytest
from measuring import measure, tune

from gunreal.config import flags
from gunreal.config.checks import check
from gunreal.config.derived import per_process
from gunreal.config.files import load
from gunreal.config.schema import Config

START = Config(agents=32)


def settings(config: Config | None) -> tuple[int, ...] | None:
    return config and (config.agents, per_process(config), config.predictors, config.max_batch)


class Machine:
    """A machine whose rates follow from the settings, with noise; it drifts, and writes down what it was asked."""

    def __init__(self, rate, lag=lambda config: 1.0, noise=0.0):
        self._rate, self._lag, self._noise = rate, lag, noise
        self._rng = np.random.default_rng(0)
        self.asked: list[Config] = []

    def __call__(self, config: Config):
        check(config)
        self.asked.append(config)
        tps = self._rate(config) * (1 + self._noise * self._rng.standard_normal()) * 0.999 ** len(self.asked)
        lag = self._lag(config)
        return tune.Trial(tps, tps, lag, "lags" if lag > 10 else "")


def peak(**best: int):
    """A rate that falls with each doubling, or each thread, away from the best settings."""

    def rate(config: Config) -> float:
        values = {name: getattr(config, name) for name in best} | {"agents_per_process": per_process(config)}
        away = [abs(math.log2(values[name] / at)) for name, at in best.items()]
        return 1000.0 * 0.85 ** sum(away)

    return rate


def climb(machine: Machine, start: Config):
    said: list[str] = []
    return tune.Search(machine, said.append).climb(start), said


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_climb_finds_the_peak(noise):
    machine = Machine(peak(agents=128, agents_per_process=8, predictors=2), noise=noise)
    best, said = climb(machine, START)
    assert settings(best.config)[:3] == (128, 8, 2) and best.rank()[0]
    assert len(machine.asked) < 80 and len(best.trials) == 3
    assert said[1] == "agents per process:"
    assert said[2].startswith("  2 x 16 agents, predictors 1, max_batch 256: ") and "lag 1.0" in said[2]


def test_settings_with_too_much_lag_are_invalid():
    machine = Machine(peak(agents=256, predictors=1), lag=lambda config: config.agents / 8)
    assert climb(machine, START)[0].config.agents == 64
    assert climb(machine, Config(agents=256))[0].config.agents == 64  # from too many, down to where it counts


def test_a_gain_that_is_not_confirmed_is_dropped():
    config, rival = Config(predictors=1), Config(predictors=2)
    rates = iter([500.0, 600.0, 500.0, 505.0, 500.0, 500.0])
    search = tune.Search(lambda config: tune.Trial(next(rates), 0.0, 1.0, ""), lambda text: None)
    first, second = tune.Settings(config), tune.Settings(rival)
    assert search.race(first, [second], repeats=3) is first and search.trials == 6


def test_no_valid_settings():
    with pytest.raises(measure.MeasurementFailed, match="lags in the last trial.*; use a larger --lag"):
        climb(Machine(peak(agents=32), lag=lambda config: 100.0), START)
    failing = tune.Search(lambda config: tune.Trial(0.0, 0.0, math.inf, "no such device"), lambda text: None)
    with pytest.raises(measure.MeasurementFailed, match="no such device"):
        failing.climb(START)


def test_the_file_is_for_config(tmp_path, monkeypatch):
    """What was given stays, what belongs to a single run goes, the settings that were found are there."""
    words = ["--env", "gunreal/Catch-v0", "--tasks", "vr", "--task", "vr.weight=0.5", "--name", "x", "--seed", "3"]
    config, extras = flags.from_flags(["", *words, "--agents", "32", "--trainers", "2"])
    machine = Machine(peak(agents=16, predictors=2))
    monkeypatch.setattr(tune, "trial", lambda config, seconds, lag: machine(config))
    out, said = tmp_path / "tuned.toml", []
    options = Namespace(seconds=6.0, lag=10.0, toml=out, given=extras.given)
    assert tune.tune(config, options, {"cores": 2, "processor": "a machine"}, said.append) == 0
    text = out.read_text()
    assert text.startswith("# Found by") and "2 cores of a machine" in text and "agent steps per second trained" in text
    assert said[-1].endswith(f"python -m gunreal.train --config {out}")
    wanted = {"env": "gunreal/Catch-v0", "tasks": ("vr",), "task": {"vr": {"weight": 0.5}}, "agents": 16, "trainers": 2}
    wanted |= {"agents_per_process": 8, "predictors": 2, "max_batch": 256}
    assert load(out) == wanted
    assert flags.from_flags(["", "--config", str(out)])[0] == Config(**wanted)


@pytest.mark.parametrize("trials", [0, 1, 6, 9, 13])
def test_a_stopped_search_writes_the_best_settings(tmp_path, monkeypatch, trials):
    machine, out = Machine(peak(agents=16, predictors=2)), tmp_path / "tuned.toml"

    def trial(config, seconds, lag):
        if len(machine.asked) == trials:
            raise KeyboardInterrupt
        return machine(config)

    monkeypatch.setattr(tune, "trial", trial)
    options = Namespace(seconds=6.0, lag=10.0, toml=out, given={"env": "gunreal/Catch-v0"})
    config = dataclasses.replace(START, env="gunreal/Catch-v0")
    arguments = (config, options, {"cores": 2, "processor": "a machine"}, [].append)
    if trials == 0:
        with pytest.raises(KeyboardInterrupt):
            tune.tune(*arguments)
        assert not out.exists()
        return
    assert tune.tune(*arguments) == 130
    first, _, last = out.read_text().splitlines()[:3]
    assert f"in {trials} trials" in first and first.endswith("stopped early")
    assert ("agent steps per second trained" in last) == (trials not in (1, 6))  # a race has just begun anew
    assert load(out)["agents"] == (32 if trials == 1 else 16)


ROW = {"pps": 101.0, "tps": 100.0, "agents": 32, "policy_lag": 5.0}
ROW["memory"] = {"with_full_rings": 900, "limit": 1000}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"policy_lag": 10.5}, "the policy lag is above 10"),
        ({"agents": 16}, "too much memory"),  # the others were not started
        ({"memory": {"with_full_rings": 951, "limit": 1000}}, "too much memory"),
    ],
)
def test_counting_rows(monkeypatch, changes, problem):
    monkeypatch.setattr(tune.measure, "row", lambda config, seconds, parts: ROW | changes)
    lag = changes.get("policy_lag", 5.0)
    assert tune.trial(Config(), 6.0, 10.0) == tune.Trial(100.0, 101.0, lag, problem)
