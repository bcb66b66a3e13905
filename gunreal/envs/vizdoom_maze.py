"""First-person mazes and an arena in ViZDoom, modeled on DeepMind Lab's nav_maze and seekavoid levels.

As in Lab, six actions (GUNREAL, section 4.1) are held for 4 frames each. A turn is about 8.45 degrees, and crossing a
cell takes about 5 steps. The rewards and the number of steps are also Lab's.

The map of an episode is drawn from its seed and written for the engine when the episode starts. The number of mazes is
therefore unlimited, and earlier episodes have no influence.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from gunreal.config.schema import ConfigError
from gunreal.envs import mazes
from gunreal.envs.options import check, check_share
from gunreal.envs.vizdoom_engine import MAX_SIZE, Engine, load, pixel_step
from gunreal.envs.vizdoom_map import CELL, ITEMS, Map, Thing

ACTIONS = ("forward", "backward", "strafe left", "strafe right", "look left", "look right")  # as in gunreal.envs.dmlab
REWARDS = {"apple": 1.0, "goal": 10.0, "lemon": -1.0}
TICS = 4  # duration of an agent step, in 35ths of a second
TURN = 384  # rotation per tic in 2**16ths of a full turn, which is 8.44 degrees per step
_BUTTONS = ("MOVE_FORWARD", "MOVE_BACKWARD", "MOVE_LEFT", "MOVE_RIGHT", "TURN_LEFT_RIGHT_DELTA")
_LEFT, _RIGHT = ((turn + 0.5) * 360 / 2**16 for turn in (-TURN, TURN))  # degrees; the engine rounds down
ORDERS: list[list[float]] = [
    [1, 0, 0, 0, 0],
    [0, 1, 0, 0, 0],
    [0, 0, 1, 0, 0],
    [0, 0, 0, 1, 0],
    [0, 0, 0, 0, _LEFT],
    [0, 0, 0, 0, _RIGHT],
]
_SIZES = range(5, 26, 2)


class DoomEnv(gymnasium.Env):
    """Base class of the mazes and the arena: the player, rewards and time. A subclass draws the map.

    Observation: uint8 `[size, size, 3]` in RGB or `[size, size, 1]` in gray. With `depth` it is a Dict with this entry
    as "image" and an entry "depth", uint8 `[size, size]`. Depth grows by 42 per cell of distance, up to 127 for walls.
    Observing depth halves the speed.

    Attributes:
      free: bool `[rows, columns]`, the cells that are not walls. Set by the first reset.
      items: items on the map. They come back when the player reaches the goal.

    Args:
      max_steps: time limit in steps, which truncates the episode.
      pixels: color mode of the image, "rgb" or "gray".
      size: height and width of the image, in pixels.
      depth: whether to observe the distance of each pixel.
      render_mode: None or "rgb_array".

    Raises:
      ConfigError: ViZDoom is not installed, or an argument is invalid. The message is one line that names the fix.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 35 / TICS}
    action_space = gymnasium.spaces.Discrete(len(ACTIONS))
    free: np.ndarray
    items: list[Thing]
    _map: Map
    _rng: np.random.Generator

    def __init__(
        self, max_steps: int, pixels: str = "rgb", size: int = 84, depth: bool = False, render_mode: str | None = None
    ):
        load()
        if pixels not in ("rgb", "gray"):
            raise ConfigError(f"pixels is {pixels!r}, but must be rgb or gray")
        image_size = f"the image size (frame_size){' with depth' if depth else ''}"
        check(image_size, size, range(20, MAX_SIZE // pixel_step(depth) + 1))
        check("max_steps", max_steps, range(1, 10**6))
        self.max_steps, self.render_mode = max_steps, render_mode
        self._size, self._gray, self._depth = size, pixels == "gray", depth
        image = gymnasium.spaces.Box(0, 255, (size, size, 1 if self._gray else 3), np.uint8)
        distance = gymnasium.spaces.Box(0, 255, (size, size), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({"image": image, "depth": distance}) if depth else image
        self._engine: Engine | None = None
        self._counts: list[float] = []
        self._time = 0

    def draw(self, rng: np.random.Generator) -> None:
        """Sets `free` and `items` for an episode."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode. Everything random in it is determined by the seed."""
        super().reset(seed=seed)
        self._rng = np.random.default_rng(int(self.np_random.integers(2**63)))
        self._time = 0
        self.draw(self._rng)
        self._map = Map(self.free, self.items)
        self._spawn()
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Performs one of `ACTIONS` for `TICS`."""
        reward = self._collect() if self.engine.act(ORDERS[action], TICS) else 0.0
        self._time += 1
        return self._observe(), reward, False, self._time >= self.max_steps, {}

    def get_action_meanings(self) -> list[str]:
        """The names of the actions."""
        return list(ACTIONS)

    def render(self) -> np.ndarray | None:
        """The current image in RGB, uint8 `[size, size, 3]`, for "rgb_array"."""
        if self.render_mode != "rgb_array":
            return None
        image, _ = self.engine.picture()
        return image[:, :, None].repeat(3, axis=2) if self._gray else np.ascontiguousarray(image)

    def close(self) -> None:
        """Closes the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    @property
    def engine(self) -> Engine:
        """The running engine. Raises RuntimeError before the first reset."""
        if self._engine is None:
            raise RuntimeError("the environment has not been reset; call reset() first")
        return self._engine

    @property
    def pose(self) -> tuple[float, float, float]:
        """The player's row, column and angle. Cell centers end in .5; degrees are 0 to the right and 90 up."""
        x, y, angle = self.engine.pose
        return len(self.free) - y / CELL, x / CELL, angle

    def _spawn(self) -> None:
        """Places the player on a random empty cell, with all items back in place."""
        taken = {item.cell for item in self.items}
        cells = [cell for cell in _cells(self.free) if cell not in taken]
        cell, angle = cells[self._rng.integers(len(cells))], int(self._rng.integers(360))
        text = self._map.text(cell, angle)
        if self._engine is None:
            counters = [item.counter for item in ITEMS.values()]
            self._engine = Engine(text, _BUTTONS, counters, self._size, self._gray, self._depth)
        self._engine.new_episode(text, (*self._map.position(cell), angle))
        self._counts = self._engine.counts()

    def _collect(self) -> float:
        """The reward for newly collected items. At the goal the player starts again elsewhere."""
        before, self._counts = self._counts, self.engine.counts()
        found = {kind: new - old for kind, old, new in zip(ITEMS, before, self._counts, strict=True)}
        if found["goal"]:
            self._spawn()
        return sum(number * REWARDS[kind] for kind, number in found.items())

    def _observe(self) -> Any:
        image, depth = self.engine.picture()
        if self._gray:
            image = image[:, :, None]
        return {"image": image, "depth": depth} if self._depth else image


class NavMaze(DoomEnv):
    """A maze with apples (+1) and a goal (+10). At the goal the player starts again elsewhere and the apples come back.

    With the defaults, a random policy gets a mean return of 2. An agent that walks straight to the goal gets 150.

    Args:
      rows: number of rows of cells, odd, including the outer walls.
      columns: number of columns of cells, odd, including the outer walls.
      openings: share of the inner walls to remove, for fewer dead ends.
      layout: seed of the maze and of the positions of apples and goal. -1 draws both anew for each episode.
      random_goal: whether each episode draws new positions of apples and goal.
      num_apples: number of apples.
      max_steps: time limit in steps.
      **options: further arguments of `DoomEnv`.
    """

    goal: tuple[int, int]

    def __init__(
        self,
        rows: int = 9,
        columns: int = 9,
        openings: float = 0.3,
        layout: int = 1,
        random_goal: bool = False,
        num_apples: int = 5,
        max_steps: int = 900,
        **options: Any,
    ):
        super().__init__(max_steps, **options)
        check("rows", rows, _SIZES)
        check("columns", columns, _SIZES)
        check_share("openings", openings)
        check("num_apples", num_apples, range(rows * columns // 10 + 1))
        self._size_in_cells, self._openings = (rows, columns), openings
        self._num_apples = num_apples
        self._draws_maze, self._draws_goal = layout < 0, layout < 0 or random_goal
        rng = np.random.default_rng(max(layout, 0))
        self._carve(rng)
        self._place(rng)

    def draw(self, rng: np.random.Generator) -> None:
        """Draws the maze and the items, if they differ between episodes."""
        if self._draws_maze:
            self._carve(rng)
        if self._draws_goal:
            self._place(rng)

    def _carve(self, rng: np.random.Generator) -> None:
        self.free = mazes.carve(*self._size_in_cells, self._openings, rng)

    def _place(self, rng: np.random.Generator) -> None:
        self.goal, *apples = _choose(self.free, 1 + self._num_apples, rng)
        self.items = [Thing("goal", self.goal), *(Thing("apple", cell) for cell in apples)]


class SeekAvoid(DoomEnv):
    """One large room with apples (+1) and lemons (-1). Each episode draws new positions.

    Args:
      rows: number of rows of cells, including the outer walls.
      columns: number of columns of cells, including the outer walls.
      num_apples: number of apples.
      num_lemons: number of lemons.
      max_steps: time limit in steps.
      **options: further arguments of `DoomEnv`.
    """

    def __init__(
        self,
        rows: int = 11,
        columns: int = 11,
        num_apples: int = 16,
        num_lemons: int = 16,
        max_steps: int = 300,
        **options: Any,
    ):
        super().__init__(max_steps, **options)
        check("rows", rows, range(5, 26))
        check("columns", columns, range(5, 26))
        self.free = np.zeros((rows, columns), bool)
        self.free[1:-1, 1:-1] = True
        most = int(self.free.sum()) // 2
        check("num_apples", num_apples, range(most))
        check("num_lemons", num_lemons, range(most))
        self._kinds = ["apple"] * num_apples + ["lemon"] * num_lemons

    def draw(self, rng: np.random.Generator) -> None:
        """Scatters the items."""
        cells = _choose(self.free, len(self._kinds), rng)
        self.items = [Thing(kind, cell) for kind, cell in zip(self._kinds, cells, strict=True)]


def _cells(free: np.ndarray) -> list[tuple[int, int]]:
    return [(row, column) for row, column in np.argwhere(free).tolist()]


def _choose(free: np.ndarray, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """`count` different free cells, drawn at random."""
    return [(row, column) for row, column in rng.permutation(np.argwhere(free))[:count].tolist()]
