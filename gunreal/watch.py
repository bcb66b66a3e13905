"""`gunreal watch RUN`: a page in the browser that plays the newest checkpoint, and shows what the network sees.

The page can stop, step back and choose actions. It goes on with newer checkpoints while the run is trained. The
episodes are those of `gunreal evaluate` until an action is chosen. The network is on the CPU, which leaves the GPU to
the training. The server answers this machine only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from gunreal.acting.session import Session
from gunreal.config import folders
from gunreal.config.arguments import Arguments, at_least
from gunreal.config.schema import ConfigError
from gunreal.envs.apart import opener
from gunreal.learning.devices import ON_CPU
from gunreal.records import checkpoint
from gunreal.records.lines import finite
from gunreal.records.pictures import colors, data_url, heat
from gunreal.run import Run, load

_PORT = 8042
_HOST = "127.0.0.1"
_NAMES = (_HOST, "localhost", "::1")  # of this machine, also at the end of a tunnel
_ORDERS = ("look", "step", "back", "anew")
_MOST_BARS = 32
_CURVE = 500  # steps
# The page needs no other page, and no other page may show it or learn anything from it.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
_HEADERS = {"Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'", "Cache-Control": "no-store"}


class Player:
    """The session of a run, which follows its checkpoints. One call at a time."""

    def __init__(self, run: Run, session: Session, follows: bool):
        self._run, self._session, self._follows = run, session, follows
        self.num_actions, self._step = run.spec.num_actions, run.step
        self._newest = self._step
        self._lock = threading.Lock()
        self._number = 0  # of changes
        self._spans: dict[tuple[str, str], tuple[float, float]] = {}

    def do(self, what: str, action: int | None = None, known: int = -1) -> dict[str, Any]:
        """Carries out an order.

        Args:
          what: one of `_ORDERS`.
          action: action of a "step". None means that of the policy.
          known: the "number" of the last answer.

        Returns:
          What there is to see, as values for JSON. Only "number" if nothing has changed.
        """
        with self._lock:
            self._follow()
            if what != "look":
                self._session.step(action) if what == "step" else getattr(self._session, what)()
                self._number += 1
            if known == self._number:
                return {"number": known}
            return {"number": self._number, **self._values(self._session.view())}

    def close(self) -> None:
        """Closes the environment, after a call that is still going on."""
        with self._lock:
            self._session.close()

    def _follow(self) -> None:
        newest = checkpoint.newest_step(self._run.path) if self._follows else self._newest
        if newest != self._newest:
            with contextlib.suppress(checkpoint.NoCheckpoint):  # it has been removed meanwhile
                saved = checkpoint.load(self._run.path)
                self._run.learner.set_weights(saved.learned())
                self._newest, self._step, self._number = newest, saved.step, self._number + 1

    def _values(self, view: dict[str, Any]) -> dict[str, Any]:
        config, frame, actions = self._run.config, view["frame"], self._session.actions
        start = max(0, min(view["step"], view["newest"] + 1 - _CURVE))
        about = {"run": self._run.path.name, "env": config.env, "trained": self._step, "steps": config.steps}
        return view | {
            **about,
            "policy": _bars(zip(actions, view["policy"], strict=True)),
            "frame": {"image": data_url(colors(frame))} if frame.ndim == 3 else self._picture("", "", frame),
            "start": start,
            "curves": {
                name: [finite(value) for value in curve[start : start + _CURVE]]
                for name, curve in view["curves"].items()
            },
            "shown": {
                task: {name: self._picture(task, name, value, actions) for name, value in values.items()}
                for task, values in view["shown"].items()
            },
        }

    def _picture(self, task: str, name: str, value: Any, actions: Sequence[str] = ()) -> dict[str, Any]:
        """Numbers by their labels as "bars", or a map as an "image" with the "range" of its colors."""
        if isinstance(value, Mapping):
            return {"bars": _bars(value.items())}
        array = np.asarray(value, np.float32)
        if array.ndim < 2 and array.size <= _MOST_BARS:
            labels = actions if array.shape == (len(actions),) else range(array.size)
            return {"bars": _bars(zip(labels, array.flat, strict=True))}
        array = array.reshape(-1, *np.atleast_2d(array).shape[-2:]).max(0)
        low, high = self._spans.get((task, name), (0.0, 0.0))
        low, high = min(low, float(array.min())), max(high, float(array.max()))
        self._spans[task, name] = low, high
        return {"image": data_url(heat(array, high, low)), "range": (low, high)}


def _bars(numbers: Iterable[tuple[Any, Any]]) -> list[tuple[str, float | None]]:
    return [(str(label), finite(number)) for label, number in numbers]


class Server(ThreadingHTTPServer):
    """The page, and orders to a player. It binds its port at once, and answers once it has a `player`.

    Attributes:
      failure: the error that ended the server, if any.

    Raises:
      ConfigError: the port cannot be used.
    """

    player: Player
    failure: Exception | None = None
    daemon_threads = True

    def __init__(self, port: int):
        try:
            super().__init__((_HOST, port), _Handler)
        except (OSError, OverflowError) as error:  # one that is no port overflows
            why = "is in use" if getattr(error, "errno", 0) == errno.EADDRINUSE else f"cannot be used ({error})"
            raise ConfigError(f"port {port} {why}; choose another one with --port") from error
        self.page = files("gunreal").joinpath("watch.html").read_bytes()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 30  # seconds in which a request must arrive

    def do_GET(self) -> None:
        if self._is_from_here():
            found = self.path == "/"
            self._send(200 if found else 404, "text/html; charset=utf-8", self.server.page if found else b"")

    def do_POST(self) -> None:
        if not self._is_from_here():
            return
        try:
            order = self._order()
        except (ValueError, KeyError, TypeError) as error:
            self._send(400, "text/plain", str(error).encode())
            return
        try:
            code, answer = 200, self.server.player.do(*order)
        except Exception as error:  # of the environment or of a task
            self.server.failure = error
            code, answer = 500, {"error": str(error)}
        self._send(code, "application/json", json.dumps(answer).encode())
        if self.server.failure:
            self.server.shutdown()

    def _order(self) -> tuple[str, int | None, int]:
        length = max(0, min(int(self.headers.get("Content-Length", 0)), 1000))
        order = json.loads(self.rfile.read(length))
        what, action = order["do"], order.get("action")
        known = action is None or (type(action) is int and 0 <= action < self.server.player.num_actions)
        if what not in _ORDERS or not known:
            raise ValueError(f"no order {what!r} with action {action!r}")
        return what, action, order.get("known", -1)

    def _is_from_here(self) -> bool:
        """Refuses other pages in the browser, also those whose name points to this machine (DNS rebinding)."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        with contextlib.suppress(ValueError):
            if urlsplit(f"//{host}").hostname in _NAMES and origin in (None, f"http://{host}"):
                return True
        self._send(403, "text/plain", b"open the address that gunreal watch has printed")
        return False

    def _send(self, code: int, kind: str, body: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the page is gone
            self.send_response(code)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def _watch(options: Any) -> None:
    os.environ |= ON_CPU
    run = load(folders.find(options.run, options.logdir), options.checkpoint)
    trained = run.step
    with Server(options.port) as server, opener(run.config) as open_envs:
        sample = options.policy == "sample"
        session = Session(run.learner, run.config, run.spec, run.heads, open_envs, options.seed, sample)
        server.player = Player(run, session, options.checkpoint == "newest")
        with contextlib.closing(server.player), contextlib.suppress(KeyboardInterrupt):
            url = f"http://{_HOST}:{server.server_address[1]}/"
            print(f"{run.path.name} at step {trained:,}: {url} (Ctrl-C ends)", flush=True)
            if options.browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
                webbrowser.open(url)  # without a screen, it might open one in the terminal
            server.serve_forever()
        if server.failure:
            raise server.failure


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit code, 0 once it is ended by Ctrl-C."""
    _watch(_parser(argv[0]).parse_args(argv[1:]))
    return 0


def _parser(program: str) -> Arguments:
    parser = Arguments(program, "Opens a page in the browser that plays a run and shows what its network sees.")
    add = parser.add_argument
    parser.add_run(policy=True)
    add("--seed", type=at_least(0), default=1, metavar="N", help="random seed of the episodes (default: 1)")
    add("--port", type=int, default=_PORT, help=f"port of the page; 0 takes any that is free (default: {_PORT})")
    add("--no-browser", dest="browser", action="store_false", help="only print the address of the page")
    return parser
