from __future__ import annotations

import re

from gunreal.config import usage
from gunreal.config.schema import FIELDS, GROUPS, Learner, Tasks


def test_every_field_is_in_one_section():
    found = [name for names in GROUPS.values() for name in names]
    assert found == list(FIELDS) == list(dict.fromkeys(found))


def test_a_resume_names_the_run_first():
    assert usage.text("python -m gunreal resume", None).startswith("usage: python -m gunreal resume RUN [--flag value]")


def test_all_flags_are_in_their_sections():
    text = usage.text("gunreal train", None)
    assert text.startswith("usage: gunreal train [--flag value] ...\n")
    parts = re.split(r"^(\w+):\n", text, flags=re.M)[1:]
    shown = {title: re.findall(r"^  --(\w+)", part, re.M) for title, part in zip(parts[::2], parts[1::2], strict=True)}
    assert list(shown) == ["Files", *(group.__name__ for group in GROUPS), "Help"]
    assert shown["Tasks"][-1] == "task_weight" and shown["Tasks"][:-1] == GROUPS[Tasks]
    assert shown["Learner"] == GROUPS[Learner]


def test_the_short_help_is_short():
    text = usage.text("gunreal train", usage.COMMON)
    assert set(re.findall(r"^  --(\w+)", text, re.M)) == usage.COMMON
    assert len(text.splitlines()) < 50


def test_descriptions_have_choices_and_defaults():
    text = " ".join(usage.text("train", None).split())
    assert "--seed Random seed (default 1)" in text
    assert "Keras backend: tensorflow, jax (default tensorflow)" in text
    assert "and standard deviation 1 (PopArt) (default true)" in text
    assert "a quarter of them otherwise. With JAX, all numbers above 1 mean all cores (default auto)" in text
