from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import threading

import pytest
from trained import catch_run

import gunreal
from gunreal.__main__ import main
from gunreal.acting.session import Session
from gunreal.envs.apart import opener
from gunreal.envs.step import AgentFailure
from gunreal.records import checkpoint
from gunreal.watch import Player, Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shutil.copytree(catch_run(tmp_path_factory.getbasetemp()), tmp_path_factory.mktemp("watched") / "catch")


@pytest.fixture(scope="module")
def server(folder):
    run = gunreal.load(folder)
    with Server(0) as server, opener(run.config) as open_envs:
        session = Session(run.learner, run.config, run.spec, run.tasks, open_envs)
        server.player = Player(run, session, follows=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, method="GET", path="/", order=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, order if isinstance(order, str) else json.dumps(order), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def do(server, what, **order):
    status, answer = ask(server, "POST", "/do", {"do": what, **order})
    assert status == 200
    return json.loads(answer)


def test_the_page_and_its_orders(server):
    status, page = ask(server)
    assert (
        status == 200
        and page.startswith(b"<!doctype html>")
        and b"http://" not in page.replace(b"http://www.w3.org/2000/svg", b"")
    )
    first = do(server, "anew")
    assert (first["step"], first["env"]) == (0, "gunreal/Catch-v0")
    assert first["frame"]["image"].startswith("data:image/png;base64,")
    assert [label for label, _ in first["policy"]] == ["left", "stay", "right"]
    assert first["curves"]["pc"] == [None] and set(first["shown"]["pc"]) == {"largest Q", "mean Q"}
    second = do(server, "step", action=2)
    assert second["step"] == 1 and second["curves"]["pc"][1] is not None
    assert do(server, "look", known=second["number"]) == {"number": second["number"]}
    back = do(server, "back")
    assert (back["step"], back["newest"], back["action"], back["frame"]) == (0, 1, 2, first["frame"])


@pytest.mark.parametrize(
    "order",
    [{"do": "close"}, {"do": "step", "action": 3}, {"do": "step", "action": 1.0}, {"do": ["step"]}, [], {}, "{", "9"],
)
def test_other_orders_are_refused(server, order):
    assert ask(server, "POST", "/do", order)[0] == 400
    assert ask(server, path="/watch.py")[0] == ask(server, path="/../setup.cfg")[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8080"}, 200),  # of a tunnel
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8042", "Origin": "http://evil.example:8042"}, 403),
        ({"Host": "["}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_only_the_page_itself_gets_an_answer(server, headers, status):
    assert ask(server, **headers)[0] == ask(server, "POST", "/do", {"do": "look"}, **headers)[0] == status


def test_it_goes_on_with_a_newer_checkpoint(server, folder):
    before = do(server, "look")
    saved = checkpoint.load(folder)
    state = {name: array * 0 if "weights/policy" in name else array for name, array in saved.state.items()}
    state["version"] = state["version"] + 1
    checkpoint.save(folder, saved.step + 100, state, saved.extra, saved.blobs)
    after = do(server, "look", known=before["number"])
    assert after["trained"] == before["trained"] + 100 and after["step"] == before["step"]
    assert [round(odds, 3) for _, odds in after["policy"]] == [0.333] * 3


def command(*argv):
    return main(["gunreal", "watch", *map(str, argv)])


@pytest.fixture
def ending(monkeypatch):
    """What happens instead of waiting for orders: Ctrl-C, or that the environment fails."""

    def serve(server):
        if isinstance(ended[0], KeyboardInterrupt):
            raise ended[0]
        server.failure = ended[0]

    ended = [KeyboardInterrupt()]
    monkeypatch.setattr(Server, "serve_forever", serve)
    monkeypatch.setattr("gunreal.watch.ON_CPU", {})
    return ended


def test_the_command_ends_with_ctrl_c_or_with_its_environment(folder, ending, capsys):
    assert command("catch", "--logdir", folder.parent, "--port", 0, "--no-browser") == 0
    assert capsys.readouterr().out.startswith("catch at step ")
    ending[0] = AgentFailure("the game is over")
    assert command(folder, "--port", 0, "--policy", "argmax") == 1
    assert capsys.readouterr().err == "gunreal: the game is over\n"


def test_what_cannot_be_watched(folder, ending, tmp_path, capsys):
    (tmp_path / "config.toml").write_bytes((folder / "config.toml").read_bytes())
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for argv, reason in (
            ((tmp_path,), "has no checkpoint yet"),
            ((folder, "--checkpoint", "12"), "no checkpoint "),
            ((folder, "--port", port), f"port {port} is in use; choose another one with --port"),
            ((folder, "--port", 99_999), "port 99999 cannot be used"),
            ((folder, "--policy", "best"), "invalid choice: 'best'"),
            ((folder, "--seed", "-1"), "argument --seed: -1 is below 0"),
        ):
            assert command(*argv) == 2
            output = capsys.readouterr()
            assert reason in output.err and output.err.count("\n") == 1 and not output.out
