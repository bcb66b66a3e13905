"""CleanRL's scripts have no callbacks, so their TensorBoard writer becomes a learning curve."""

import sys
import types

import pytest
from peers import cleanrl
from peers.curve import Curve

from gunreal.records import metrics

# What the script does with its writer, without games and networks.
SCRIPT = """
import os
import sys
from torch.utils.tensorboard import SummaryWriter
flags = dict(word.removeprefix("--").split("=") for word in sys.argv[1:])
assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
assert flags.pop("env-id") == "Breakout-v5"
assert flags == {"seed": "7", "num-envs": "4", "total-timesteps": "812"}
assert 812 // (4 * 128) * (4 * 128) >= 300  # the script takes whole batches only
writer = SummaryWriter("runs/name")
writer.add_text("hyperparameters", "|param|value|")
for step in range(100, 1000, 100):
    writer.add_scalar("charts/avg_episodic_return", 0.0, step)
    writer.add_scalar("charts/episodic_return", step / 100, step)
    writer.add_scalar("losses/entropy", 1.0, step)
    writer.add_scalar("charts/SPS", 300, step + 50)
writer.close()
"""


@pytest.mark.parametrize(
    ("script", "learn"), [("ppo_atari_envpool", cleanrl.learn_ppo), ("pqn_atari_envpool", cleanrl.learn_pqn)]
)
def test_the_curve_of_a_run(monkeypatch, tmp_path, script, learn):
    for name in ("torch", "torch.utils", "torch.utils.tensorboard", "cleanrl"):
        package = types.ModuleType(name)
        package.__path__ = [str(tmp_path)]
        monkeypatch.setitem(sys.modules, name, package)
    sys.modules["torch.utils"].tensorboard = sys.modules["torch.utils.tensorboard"]
    (tmp_path / f"{script}.py").write_text(SCRIPT)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(sys, "argv", ["train_peer.py"])
    curve = Curve(tmp_path, 300, every=0.0)
    learn(curve, "Breakout", 7, envs=4)
    curve.close()
    lines = metrics.read(tmp_path / "metrics.jsonl")
    assert [line["step"] for line in lines] == [100, 150, 200, 250, 300, 300]
    assert lines[-1]["score_mean"] == 2.0 and lines[-1]["stopped_by"] == "steps"
