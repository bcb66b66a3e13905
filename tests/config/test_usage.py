from __future__ import annotations

import inspect
import re

from gunreal.config import usage
from gunreal.config.schema import FIELDS, Config


def test_sections_are_those_of_the_configuration():
    """The comments in `Config` and the sections of the help divide the fields in the same way."""
    found: dict[str, list[str]] = {}
    for line in inspect.getsource(Config).splitlines():
        if title := re.match(r"    # (.+)", line):
            names = found[title[1]] = []
        elif (field := re.match(r"    (\w+): ", line)) and field[1] in FIELDS:
            names.append(field[1])
    assert usage.sections() == found


def test_a_resume_names_the_run_first():
    assert usage.text("python -m gunreal resume", None).startswith("usage: python -m gunreal resume RUN [--flag value]")


def test_all_flags_are_in_their_sections():
    text = usage.text("gunreal train", None)
    assert text.startswith("usage: gunreal train [--flag value] ...\n")
    parts = re.split(r"^(\w+):\n", text, flags=re.M)[1:]
    shown = {title: re.findall(r"^  --(\w+)", part, re.M) for title, part in zip(parts[::2], parts[1::2], strict=True)}
    assert list(shown) == ["Files", *usage.SECTIONS.values(), "Help"]
    assert shown["Tasks"][-1] == "task_weight" and shown["Tasks"][:-1] == usage.sections()["Tasks"]
    assert shown["Learner"] == usage.sections()["Learner"]


def test_the_short_help_is_short_and_has_every_section():
    text = usage.text("gunreal train", usage.COMMON)
    assert set(re.findall(r"^  --(\w+)", text, re.M)) == usage.COMMON
    assert all(f"\n{title}:\n" in text for title in usage.SECTIONS.values())
    assert len(text.splitlines()) < 50


def test_descriptions_have_choices_and_defaults():
    text = " ".join(usage.text("train", None).split())
    assert "--seed Random seed (default 1)" in text
    assert "Keras backend: tensorflow, jax (default tensorflow)" in text
    assert "in a single thread (default false)" in text
    assert "a quarter of them otherwise. With JAX, all numbers above 1 mean all cores (default auto)" in text
