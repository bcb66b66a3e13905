"""Runs the consoles of a `VectorAtari` on a GPU, through JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gunreal_emulator.build import EmulatorUnavailable
from gunreal_emulator.cpu_engine import Results, check_actions
from gunreal_emulator.settings import Settings

if TYPE_CHECKING:
    import jax


def find_device(name: str) -> jax.Device:
    """Returns the first GPU for "cuda", or the default device of JAX for "jax".

    Raises:
      EmulatorUnavailable: there is no GPU, or JAX is missing.
    """
    try:
        from jax import devices
    except ImportError:
        raise EmulatorUnavailable(f"device={name!r} needs JAX; install jax[cuda12], or use device='cpu'") from None
    try:
        return devices("cuda" if name == "cuda" else None)[0]
    except RuntimeError:
        raise EmulatorUnavailable("JAX finds no CUDA GPU; install a driver and jax[cuda12], or use the CPU") from None


class DeviceEngine:
    """Consoles whose state is in JAX arrays on a device. The methods are those of `CpuEngine`.

    Args:
      games: games with equal settings.
      of: index in `games` of each console's game, ascending.
      device: device of JAX.
    """

    def __init__(self, games: Sequence[Settings], of: np.ndarray, device: jax.Device):
        import jax

        from gunreal_emulator.ffi import DeviceAtari

        self._jax, self._games, self._of, self._device = jax, games, of, device
        self._atari = DeviceAtari.of_settings(games, of, device)
        self._init, self._select = jax.jit(self._atari.init), jax.jit(self._selected, donate_argnums=0)
        self._observe, self._step = jax.jit(self._looked), jax.jit(self._stepped, donate_argnums=0)
        self._state: Any = None
        self._results: Results | None = None

    def start(self, actions: Any, reset: np.ndarray | None, seeds: np.ndarray | None) -> None:
        """Starts a step, whose results `finish` returns. They may still be computed then."""
        if actions is not None:
            actions = self._put(actions)
            check_actions(actions, len(self._of))
            self._state, self._results = self._step(self._state, actions)
            return
        assert reset is not None and seeds is not None
        new, mask = self._init(self._put(seeds.astype(np.uint32))), self._put(reset.astype(bool))
        self._state = new if reset.all() else self._select(self._state, new, mask)
        before, self._results = self._results, self._observe(self._state)
        if before is not None and not reset.all():
            self._results = self._results._replace(frames=self._selected(before.frames, self._results.frames, mask))

    def wait(self) -> None:
        """Does nothing: the state is that after all steps."""

    def finish(self) -> Results:
        """Returns the results of a step."""
        assert self._results is not None
        return self._results

    def players(self) -> np.ndarray:
        """Returns the states without pictures, uint8 `[n, bytes]`."""
        return np.array(self._state.players)

    def pictures(self, k: int) -> np.ndarray:
        """Returns both pictures of a console, uint8 `[2, height, 160]`."""
        size = 2 * self._games[self._of[k]].loaded.game.height * 160
        return np.array(self._state.screens[k]).ravel()[:size].reshape(2, -1, 160)

    def load(self, players: np.ndarray, pictures: Sequence[np.ndarray]) -> None:
        """Sets the states to those of `players` and `pictures`."""
        self._state = self._jax.device_put(self._atari.loaded(players, pictures), self._device)
        self._results = None

    def close(self) -> None:
        """Frees the consoles."""
        self._state = self._results = None

    def _put(self, value: Any) -> jax.Array:
        """Returns an array on the device. Arrays of other libraries on the same device are not copied."""
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | self._jax.Array):
            value = self._jax.numpy.from_dlpack(value)
        value = value if isinstance(value, self._jax.Array) else np.asarray(value)
        return self._jax.device_put(value, self._device)

    def _stepped(self, state: Any, actions: jax.Array) -> tuple[Any, Results]:
        state, *results = self._atari.step(state, actions)
        return state, Results(*results, **self._atari.info(state))

    def _looked(self, state: Any) -> Results:
        n, zeros = len(self._of), self._jax.numpy.zeros
        return Results(self._atari.observe(state), zeros(n), zeros(n, bool), zeros(n, bool), **self._atari.info(state))

    def _selected(self, old: Any, new: Any, mask: jax.Array) -> Any:
        def choose(a: jax.Array, b: jax.Array) -> jax.Array:
            return self._jax.numpy.where(mask.reshape(-1, *[1] * (a.ndim - 1)), b, a)

        return self._jax.tree.map(choose, old, new)
