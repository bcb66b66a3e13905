import pickle
import sys
import textwrap
from importlib.metadata import EntryPoint

import pytest
from wording import MEAN

from gunreal import tasks
from gunreal.config.plugins import FIND_MODULE
from gunreal.config.schema import ConfigError
from gunreal.experience.replay import Replay
from gunreal.tasks import registry
from gunreal.tasks.pixel_control import PixelControl
from gunreal.tasks.registry import load_tasks
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.tasks.value_replay import ValueReplay

PLUGIN = """
import dataclasses
from gunreal.learning.task import AuxiliaryTask

@dataclasses.dataclass(frozen=True)
class Mine(AuxiliaryTask):
    name = "mine"
    units: int = 8
    mode: str = "a"
    deep: bool = False
    sizes: tuple[int, ...] = (1, 2)
    limit: int | None = None

class Bare(AuxiliaryTask):
    name = "bare"

class Nameless(AuxiliaryTask):
    pass

class Reserved(AuxiliaryTask):
    name = "base"

class NoTask:
    name = "notask"
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Writes a module of the given name and source to the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return tmp_path / f"{name}.py"

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def mine(plugin):
    plugin("my_plugin", PLUGIN)


def offer(monkeypatch, **values):
    points = [EntryPoint(name, value, registry.TASK.group) for name, value in values.items()]
    monkeypatch.setattr(registry.plugins, "entry_points", lambda group: points)


def test_built_in_tasks_in_the_order_named():
    assert load_tasks(["rp", "pc", "vr"]) == (RewardPrediction(), PixelControl(), ValueReplay())
    assert load_tasks([]) == ()


def test_options_are_fields():
    pc, vr = load_tasks(["pc", "vr"], {"pc": {"weight": 0.05, "cell": 2}, "vr": {"weight": 2}})
    assert pc == PixelControl(weight=0.05, cell=2) and vr == ValueReplay(weight=2)


def test_module_and_class(mine):
    (task,) = load_tasks(["my_plugin:Mine"], {"mine": {"units": 16, "sizes": [3, 4], "limit": 7, "deep": True}})
    assert task.units == 16 and task.limit == 7 and task.name == "mine"
    assert load_tasks(["my_plugin:Bare"], {"bare": {"weight": 0.5}})[0].weight == 0.5


@pytest.mark.parametrize(
    ("decorator", "body", "lost"),
    [
        ("", "weight: float = 0.5", "weight"),
        ("@dataclasses.dataclass(frozen=True)", "weight = 0.5", "weight"),
        ("", "units: int = 8", "units"),
        ("", "units: int", "units"),
    ],
)
def test_an_option_without_effect_is_refused(plugin, decorator, body, lost):
    """A dataclass would keep the default of the base class, or have no such option."""
    plugin(
        "lost_plugin",
        f"import dataclasses\nfrom gunreal.tasks import AuxiliaryTask\n"
        f"{decorator}\nclass Lost(AuxiliaryTask):\n    name = 'lost'\n    {body}\n"
        "@dataclasses.dataclass(frozen=True)\nclass Later(Lost):\n    more: int = 1\n",
    )
    fix = rf"Lost.{lost} has no effect .*annotate it, .*@dataclasses.dataclass\(frozen=True\) above class Lost$"
    for name in ("Lost", "Later"):
        with pytest.raises(ConfigError, match=f"task 'lost_plugin:{name}': {fix}"):
            load_tasks([f"lost_plugin:{name}"])


@pytest.mark.parametrize("options", ["frozen=True", "frozen=True, slots=True"])
def test_options_and_class_variables_that_have_an_effect(plugin, options):
    plugin(
        "good_plugin",
        f"""
        from __future__ import annotations
        import dataclasses, typing
        from gunreal.tasks import AuxiliaryTask

        @dataclasses.dataclass({options})
        class Good(AuxiliaryTask):
            name = "good"
            constant = 3
            shared: typing.ClassVar[int] = 4
            weight: float = 0.5
            sizes: list[int] = dataclasses.field(default_factory=list)

        class Child(Good):
            shared: typing.ClassVar[int] = 5
        """,
    )
    for name in ("Good", "Child"):
        assert load_tasks([f"good_plugin:{name}"])[0].weight == 0.5


def test_the_bits_of_the_flags_are_public():
    assert (tasks.FIRST, tasks.TERMINATED, tasks.TRUNCATED, tasks.RESET) == (1, 2, 4, 8)
    bits = ("FIRST (1)", "TERMINATED (2)", "TRUNCATED (4)", "RESET (8)")
    assert all(bit in Replay.get.__doc__ for bit in bits)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["pcc"], {}, f"unknown task 'pcc'; available: .*pc, .*rp, .*vr.*, or module:Class; {MEAN} pc\\?$"),
        (["nothing"], {}, "unknown task 'nothing'; available:"),
        (["pc", "vr", "pc"], {}, "'pc' is named more than once; .* as in other=pc$"),
        (["vr", "gunreal.tasks.value_replay:ValueReplay"], {}, "'vr' is named more than once"),
        (["vr"], {"pc": {"weight": 1.0}}, r"options are set for 'pc', which is not among the tasks \(vr\); add it"),
        (["pc"], {"pc": {"wieght": 1.0}}, f"'pc' has no option 'wieght'; available: cell, .*; {MEAN} weight\\?$"),
        (["pc"], {"pc": {"name": "x"}}, "'pc' has no option 'name'"),
        (["pc"], {"pc": {"cell": 2.5}}, "pc.cell is 2.5, but must be of type int"),
        (["pc"], {"pc": {"cell": True}}, "pc.cell is True, but must be of type int"),
        (["pc"], {"pc": {"weight": "much"}}, "pc.weight is 'much', but must be of type float and finite"),
        (["mh"], {"mh": {"discounts": ["a"]}}, r"mh.discounts is \['a'\], but must be of type tuple\[float, ...\]"),
        (["pc"], {"pc": {"weight": -1.0}}, "pc.weight is -1.0, but must be finite and at least 0"),
        (["pc"], {"pc": {"weight": float("nan")}}, "pc.weight is nan, but must be of type float and finite"),
        (["my_plugin:Mine"], {"mine": {"mode": 3}}, "mine.mode is 3, but must be of type str"),
        (["my_plugin:Mine"], {"mine": {"deep": 1}}, "mine.deep is 1, but must be of type bool"),
        (["my_plugin:Mine"], {"mine": {"sizes": "12"}}, "mine.sizes is '12', but must be of type tuple"),
        (["my_plugin:Mine"], {"mine": {"limit": "x"}}, "mine.limit is 'x', but must be of type int | None"),
        (["my_plugin:Absent"], {}, "my_plugin:Absent: AttributeError: .* has no attribute 'Absent'; correct it$"),
        (["my_plugin:Mines"], {}, f"has no attribute 'Mines'; {MEAN} Mine\\?$"),
        (["my_plugin:NoTask"], {}, "is not a subclass of gunreal.learning.task.AuxiliaryTask"),
        (["my_plugin:Nameless"], {}, "Nameless.name is None; choose an identifier"),
        (["my_plugin:Reserved"], {}, "Reserved.name is 'base'; choose an identifier other than base"),
        (["no_such_module:Task"], {}, f"from no_such_module:Task: .*No module named 'no_such_module'; {FIND_MODULE}$"),
        (["my_plugin.part:Task"], {}, "'my_plugin' is not a package; install it"),
        (["vr=pc", "vr"], {}, "^task 'vr' is named more than once"),
        (["far-off=pc"], {}, "^a task is called 'far-off'; choose an identifier other than base,"),
        (["past=pc"], {}, "^a task is called 'past'; choose an identifier other than base,"),
        (["old=pc"], {}, "^a task is called 'old'; choose an identifier other than base,"),
        (["torso=pc"], {}, "^a task is called 'torso'; choose an identifier other than base,"),
        (["far=pc"], {"far": {"discounts": 1}}, "^task 'far' has no option 'discounts'"),
        (["far=pc"], {"far": {"weight": -1.0}}, "^far.weight is -1.0"),
        (["far=pc"], {"pc": {"weight": 1.0}}, "^options are set for 'pc', which is not among the tasks"),
    ],
)
def test_mistakes_are_one_line_that_names_the_fix(mine, names, options, message):
    with pytest.raises(ConfigError, match=message) as error:
        load_tasks(names, options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("import math\nx = 1 / 0\n", "ZeroDivisionError: division by zero", 2),
        ("import math\n\nimport surely_not_installed\n", "No module named 'surely_not_installed'", 3),
        ("def f(:\n    pass\n", "invalid syntax|argument expected|parameter", 1),
        ("import json\njson.loads('{')\n", "JSONDecodeError", None),
    ],
)
def test_broken_plug_in_names_its_file_and_keeps_its_error(plugin, source, message, line):
    path = plugin("broken_plugin", source)
    with pytest.raises(ConfigError, match=message) as error:
        load_tasks(["broken_plugin:Task"])
    assert "install it" not in str(error.value)  # the plug-in itself is there
    assert isinstance(error.value.__cause__, (ArithmeticError, ImportError, SyntaxError, ValueError))
    assert line is None or f"({path}:{line})" in str(error.value)


def test_plug_in_by_entry_point(mine, monkeypatch):
    """That of a built-in task may be seen twice."""
    offer(monkeypatch, mine="my_plugin:Mine", pc="gunreal.tasks.pixel_control:PixelControl")
    assert [task.name for task in load_tasks(["pc", "mine"])] == ["pc", "mine"]


@pytest.mark.parametrize(
    ("offered", "name", "message"),
    [
        ({"other": "my_plugin:Mine"}, "other", "Mine.name is 'mine'; give the class and its entry point the same name"),
        ({"pc": "another_package:PixelControl"}, "vr", "two installed packages provide a task 'pc'"),
    ],
)
def test_entry_points_that_cannot_be(mine, monkeypatch, offered, name, message):
    offer(monkeypatch, **offered)
    with pytest.raises(ConfigError, match=message):
        load_tasks([name])


def test_a_copy_of_a_task_under_a_name_of_its_own():
    tasks = load_tasks(["pc", "far=pc"], {"far": {"discount": 0.99}})
    assert [(task.name, task.discount) for task in tasks] == [("pc", 0.9), ("far", 0.99)]
    assert pickle.loads(pickle.dumps(tasks[1])).name == "far"
