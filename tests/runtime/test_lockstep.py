"""Saved states of serial runs. test_serial.py has what is in them."""

from __future__ import annotations

import os
import pickle

import pytest

from gunreal.config.schema import ConfigError
from gunreal.runtime import lockstep


class Evil:
    def __reduce__(self):
        return os.mkdir, (str(Evil.folder),)


def test_no_checkpoint_runs_code(tmp_path):
    Evil.folder = tmp_path / "evil"
    with pytest.raises(ConfigError, match="cannot be read: .*; start a new run"):
        lockstep.unpack(pickle.dumps({"workers": Evil()}))
    assert not Evil.folder.exists()
    with pytest.raises(ConfigError, match="cannot be read"):
        lockstep.unpack(b"{")
