from __future__ import annotations

import pytest
from helpers import Bench
from measuring import window

from gunreal.runtime.trainer import learned


@pytest.mark.parametrize("tasks", [(), ("vr",)])
def test_bytes_per_step_against_the_arrays(tasks):
    """What is written to a row, and what one step's predictions and training take, counted by hand."""
    with Bench("~", tasks, agents=2, min_batch=8, replay_size=10) as bench:
        bench.start()
        (batch, *_) = bench.step(20)
        sizes = {"base": [2, 2, 1], "vr": [1]} if tasks else {"base": [2, 2, 1]}
        found = window.bytes_per_step(bench.spec, bench.layout.arrays(), sizes, learned(batch))
        frame, stack = 3 * 4, 2
        assert (
            found["written"] == frame + 4 + 4 + 1 + 1 + 4 + 4 + 4
        )  # action, reward, flags, age, log mu, value, version
        assert found["gathered_predict"] == stack * frame * (6 / 5 if tasks else 1)
        arrays = [*batch["base"].values(), *(batch["vr"].values() if tasks else ())]
        assert found["gathered_train"] == sum(array.nbytes for array in arrays) / 8
        assert found["to_device"] == found["gathered_predict"] + found["gathered_train"]
