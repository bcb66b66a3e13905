"""How many cells of a maze are visited with a reward for what is new, and without it?

python explore.py --task rnd --seeds 2 3 4 5 6

The goal of the maze is too far for an agent that walks at random. Runs are written to runs/explore.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium

from gunreal.envs.maze import RareGoalMaze

MAZE = {"size": 13, "max_steps": 60, "min_distance": 24}
FLAGS = ["--agents", "16", "--frame_size", "26", "--frame_stack", "1", "--hidden", "64", "--env", "explore:Visits"]


class Visits(gymnasium.Wrapper):
    """The maze. It writes each cell that this process visits for the first time to a file in a folder."""

    def __init__(self, folder: str):
        super().__init__(RareGoalMaze(**MAZE))
        self.file, self.seen = Path(folder, f"{os.getpid()}-{id(self)}"), set()

    def _visited(self, result: tuple[Any, ...]) -> tuple[Any, ...]:
        if (place := self.env.place) not in self.seen:
            self.seen.add(place)
            with self.file.open("a") as file:
                print(*place, file=file)
        return result

    def reset(self, **options: Any) -> tuple[Any, ...]:
        """See `gymnasium.Env`."""
        return self._visited(self.env.reset(**options))

    def step(self, action: int) -> tuple[Any, ...]:
        """See `gymnasium.Env`."""
        return self._visited(self.env.step(action))


def visited(name: str, tasks: str, seed: int, steps: str) -> int:
    """Trains, and returns the number of cells that all agents have visited."""
    cells = Path("runs/explore", name, "cells").absolute()
    cells.mkdir(parents=True)
    command = [sys.executable, "-m", "gunreal.train", *FLAGS, "--env_args", f"folder={cells}", "--tasks", tasks]
    run = ["--steps", steps, "--seed", str(seed), "--logdir", "runs/explore", "--name", f"{name}-run"]
    subprocess.run([*command, *run], check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parent)
    return len({line for file in cells.iterdir() for line in file.read_text().splitlines()})


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="rnd")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 4, 5, 6])
    parser.add_argument("--steps", default="150k")
    options = parser.parse_args()
    print(f"| seed | base | {options.task} |, of {len(RareGoalMaze(**MAZE).cells)} cells")
    for seed in options.seeds:
        base, task = (visited(f"{x or 'base'}-{seed}", x, seed, options.steps) for x in ("", options.task))
        print(f"| {seed} | {base} | {task} |", flush=True)


if __name__ == "__main__":
    main()
