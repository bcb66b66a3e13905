from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import EntryPoint

import gunreal_emulator  # noqa: F401  (registers its ids)
import gymnasium
import pytest

from gunreal import listing
from gunreal.config import plugins
from gunreal.config.schema import Config, ConfigError
from gunreal.learning.registry import NETWORK
from gunreal.tasks import registry


def paragraphs(found) -> dict[str, str]:
    """The paragraphs by their first word."""
    return {re.match(r"\w+", text)[0]: text for text in found}


def test_plugins_have_a_description_and_their_options():
    found = paragraphs(listing.tasks())
    assert set(plugins.available(registry.TASK)) == set(found)
    assert found["pc"].startswith("pc: n-step Q-learning of the change")
    assert "options: weight=0.01, discount=0.9, cell=0" in found["pc"]
    assert "from: gunreal, gunreal.tasks.pixel_control:PixelControl" in found["pc"]
    assert "fit" not in found["pc"].splitlines()[-1]
    found = paragraphs(listing.installed(NETWORK))
    assert set(found) >= {"small", "large", "lstm", "mlp", "impala"}
    assert found["impala"].startswith("impala: IMPALA's residual network")
    assert "options: hidden=256, width=1" in found["impala"]


def test_plugins_that_are_named_are_described_in_full(capsys):
    assert listing.main("tasks", ["gunreal tasks", "pc", "broken_tasks:Recording"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("pc: n-step Q-learning") and "\n    cell: side of a cell, in pixels." in out
    assert "\n  options: weight=0.01, discount=0.9, cell=0\n" in out and "rp: Stores a field of its own" in out
    assert listing.main("networks", ["gunreal networks", "mlp"]) == 0
    assert capsys.readouterr().out.startswith("mlp: ")
    assert listing.main("objectives", ["gunreal objectives", "dqn"]) == 0
    assert "\n    steps: number of steps n in the n-step returns." in capsys.readouterr().out
    with pytest.raises(ConfigError, match="unknown task 'nope'"):
        listing.main("tasks", ["gunreal tasks", "nope"])


def test_tasks_that_fit_an_environment():
    found = paragraphs(listing.tasks(Config(env="CartPole-v1")))
    assert found["vr"].endswith("\n  fits CartPole-v1")
    assert re.search(r"\n  does not fit: .*image", found["pc"])
    assert re.search(r"\n  does not fit: .*cannot record \['depth'\]", paragraphs(listing.tasks(Config()))["depth"])


def test_tasks_do_not_fit_without_memory():
    config = Config(env="scripted_env:Numbered", env_args={"states": 1_000_000}, memory_limit=2**32)
    found = paragraphs(listing.tasks(config))
    assert "does not fit: the memory limit of" in found["vr"] and "observation (3,906 KiB)" in found["vr"]


def test_a_task_that_is_given_is_listed(capsys):
    words = ["--env", "CartPole-v1", "--tasks", "vr,broken_tasks:Recording,no_such:Task"]
    assert listing.main("tasks", ["gunreal tasks", *words]) == 0
    *installed, given, missing, _ = capsys.readouterr().out.split("\n\n")
    assert given.startswith("rp: Stores a field of its own; keeps the contract.\n  options: weight=0.05")
    assert "\n  from: broken_tasks:Recording\n  does not fit: " in given
    assert missing.startswith("no_such:Task\n  cannot be used: cannot load task")
    assert [text.partition(":")[0] for text in installed] == sorted(plugins.available(registry.TASK))


def test_options_that_are_given_are_shown(capsys):
    words = ["--tasks", "pc,mh", "--task", "pc.discount=0.8,mh.discounts=[0.5]"]
    assert listing.main("tasks", ["gunreal tasks", *words]) == 0
    found = paragraphs(capsys.readouterr().out.split("\n\n"))
    assert "options: weight=0.01, discount=0.8, cell=0" in found["pc"]
    assert "options: weight=0.5, discounts=[0.5]" in found["mh"]
    assert listing.main("tasks", ["gunreal tasks", "--tasks", "vr", "--task", "vr.speed=3"]) == 0
    assert "vr\n  cannot be used: task 'vr' has no option 'speed'" in capsys.readouterr().out


def test_a_verdict_depends_on_the_options_of_the_task():
    config = Config(env="gunreal/Catch-v0", tasks=("pc",), task={"pc": {"cell": 50}})
    found = paragraphs(listing.tasks(config))
    assert re.search(r"\n  does not fit: pc.cell is 50: leave it out, or choose 1 to 21", found["pc"])
    config = Config(env="recall:Recall", env_args={"told": True})
    found = paragraphs(listing.tasks(config, ["liking:Pairs"]))
    assert "\n  does not fit: task 'pairs' has a bonus of two observations, which does not work with" in found["pairs"]
    assert found["vr"].endswith("\n  fits recall:Recall")


def test_a_broken_plug_in_does_not_hide_the_others(monkeypatch):
    broken = EntryPoint("broken", "no_such_module:Task", registry.TASK.group)
    points = {"broken": broken, "vr": plugins.available(registry.TASK)["vr"]}
    monkeypatch.setattr(plugins, "available", lambda kind: points)
    found = paragraphs(listing.tasks())
    assert found["broken"].startswith("broken\n  cannot be used: cannot load task 'broken' from no_such_module:Task")
    assert found["vr"].startswith("vr: Regression")


def test_environments_by_family():
    text = "\n".join(listing.envs())
    for name in (
        "gunreal/Catch-v0",
        "ALE/Pong-v5",
        "gunreal/NavMazeStatic-v0",
        "dmlab/nav_maze_static_01",
        "CartPole-v1",
    ):
        assert text.split().count(name) == 1
    assert text.count("/Pong-v5") == 1  # although gunreal/Pong-v5 exists, too
    assert "MountainCarContinuous" not in text and "Reacher" not in text


def test_missing_packages_are_listed_with_their_remedy(monkeypatch):
    monkeypatch.setattr(listing, "is_installed", lambda name: False)
    monkeypatch.setitem(sys.modules, "vizdoom.gymnasium_wrapper", None)
    found = "\n\n".join(listing.envs())
    assert "in ViZDoom (not installed: pip install 'gunreal[vizdoom]')\n  gunreal/NavMazeStatic-v0" in found
    assert "ViZDoom's scenarios (not installed: pip install 'gunreal[vizdoom]')\n\n" in found
    assert "(not installed: run pip install dmlab-gym && dmlab-gym build, " in found


def test_environments_of_other_packages(monkeypatch):
    monkeypatch.setitem(
        gymnasium.registry, "Mine-v0", gymnasium.envs.registration.EnvSpec("Mine-v0", "my_package.sub:Env")
    )
    assert "From the package my_package\n  Mine-v0" in list(listing.envs())


def test_lists_are_quick():
    """They import no framework and open no environment."""
    program = (
        "import sys; from gunreal.__main__ import main\n"
        "main(['gunreal', 'tasks']); main(['gunreal', 'envs'])\n"
        "heavy = {'tensorflow', 'jax', 'keras', 'cv2', 'gunreal.train', 'gunreal.envs.atari'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
