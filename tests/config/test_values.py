"""What becomes of a function or a class in a configuration. Numbers and tables are in test_schema.py."""

from __future__ import annotations

import functools

import pytest

from gunreal.config.checks import check
from gunreal.config.files import load, save
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.catch import Catch
from gunreal.tasks.pixel_control import PixelControl


def make_catch():
    return Catch()


def in_a_script():
    pass


in_a_script.__module__ = "__main__"


class Namespace:
    @staticmethod
    def make():
        pass


def shadowed():
    pass


hidden, shadowed = shadowed, None


def test_functions_and_classes_become_names(tmp_path):
    config = Config(env=Catch, tasks=("rp", PixelControl), task={"pc": {"weight": 0.5}})
    assert config.env == "gunreal.envs.catch:Catch"
    assert config.tasks == ("rp", "gunreal.tasks.pixel_control:PixelControl")
    check(config)
    save(config, tmp_path / "config.toml")
    assert Config(**load(tmp_path / "config.toml")) == config
    assert Config(env="a.b:c", tasks=["pc"]) == Config(env="a.b:c", tasks=("pc",))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"env": in_a_script}, "env: other processes cannot import in_a_script from a script or a notebook; define it"),
        ({"env": lambda: None}, "at the top of a module; define it in a module"),
        ({"env": Namespace.make}, "Namespace.make cannot be imported, because it is not at the top of a module"),
        ({"env": hidden}, "does not give shadowed when it is imported; define it in a module"),
        ({"env": functools.partial(make_catch)}, "has no name to import it by; give a function or a class"),
        ({"env": Catch()}, "env is <.*Catch.*>, but must be a string, or the class or .* not an instance"),
        ({"tasks": (PixelControl(),)}, "a list of names and classes; set options with task, and name the"),
        ({"tasks": (make_catch,)}, "a list of names and classes"),
        ({"tasks": ("pc", type("Mine", (PixelControl,), {"__module__": "__main__"}))}, "tasks: other processes cannot"),
    ],
)
def test_things_that_cannot_be_imported_are_rejected_in_one_line(values, message):
    with pytest.raises(ConfigError, match=message) as error:
        Config(**values)
    assert "\n" not in str(error.value)
