"""The process of an evaluation during training, which `evaluation` starts."""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading

from gunreal.acting.episodes import play, summarize
from gunreal.config import folders
from gunreal.config.schema import ConfigError
from gunreal.envs.process_groups import exit_with_the_server
from gunreal.envs.step import AgentFailure
from gunreal.records import checkpoint, interface
from gunreal.runtime.system import build_learner, on_this_machine


def main() -> None:
    """Plays with the weights of a checkpoint, and writes the mean, the deviation and the mean length as a JSON list.

    Its order arrives pickled on standard input: the folder of the run, the checkpoint, and the descriptors of a file
    whose time is set after each step and of the file for the result. It ends with the server, as agent processes do.
    """
    os.nice(19)
    run_dir, path, alive, result = pickle.load(sys.stdin.buffer)
    threading.Thread(target=exit_with_the_server, daemon=True).start()
    try:
        config = on_this_machine(folders.saved_config(run_dir))
        spec, _ = interface.of(run_dir, config)
        learner = build_learner(config, spec, ())
        learner.set_weights(checkpoint.load(run_dir, path).learned())
        played = play(learner, config, spec, config.eval_episodes, on_step=lambda: os.utime(alive))
        scores = summarize(list(played))
    except (ConfigError, AgentFailure) as error:
        sys.exit(str(error))
    os.write(result, json.dumps([scores[name] for name in ("mean", "std", "mean_length")]).encode())
