from __future__ import annotations

import subprocess
import sys
import threading
import time

from measuring import sampling

from gunreal.experience import queues
from gunreal.runtime.crew import Crew


def test_a_thread_is_where_it_waits():
    pipe = queues.Pipe(queues.REQUEST)
    crew = Crew("base", lambda timeout: pipe.get(1, timeout), print, print)
    crew.resize(2)
    with sampling.Sampler(hertz=500) as sampler:
        while not sampler.shares().get("base"):
            time.sleep(0.01)
    crew.stop(), pipe.close()
    shares = sampler.shares()
    assert set(shares["base"]) <= {"queues.get", "queues.Pipe.get", "crew.Crew._run", "crew.Crew._turn", "elsewhere"}
    assert sum(shares["base"].values()) == sum(shares["main"].values()) == 1
    assert shares["main"] == {"elsewhere": 1} and "sampler" not in shares and 0 < sampler.cost < 1


def test_roles():
    names = {
        "base-0": "base",
        "trainer-12": "trainer",
        "MainThread": "main",
        "my-task-3": "my-task",
        "x": "x",
        "-1": "-1",
    }
    assert {name: sampling.role(name) for name in names} == names


def test_a_place_is_the_innermost_function_of_this_library():
    places = []

    class Spy(Crew):
        def resize(self, size):
            places.append(sampling.place(sys._getframe()))
            super().resize(size)

    def fetch(timeout):
        places.append(sampling.place(sys._getframe()))

    crew = Spy("spy", fetch, print, print)
    crew.resize(1)
    crew.stop()
    assert places[:2] == ["elsewhere", "crew.Crew._turn"] and sampling.place(None) == "elsewhere"


def burn(seconds: float) -> None:
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        pass


def test_cpu_seconds_go_to_the_thread_that_used_them():
    ready, end = threading.Event(), threading.Event()

    def work():
        burn(0.3)
        ready.set()
        end.wait()

    before = sampling.thread_seconds()
    thread = threading.Thread(target=work, name="worker-0")
    thread.start()
    ready.wait()
    after = sampling.thread_seconds()
    end.set(), thread.join()
    assert 0.25 <= after["worker"] < 0.6 and after["main"] - before["main"] < 0.2


def test_cpu_seconds_of_children_and_of_theirs():
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]); print(flush=True); input()"
    inner = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    others = sampling.child_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", program, inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        child.stdout.readline()
        found = {child: seconds for child, seconds in sampling.child_seconds().items() if child not in others}
        assert len(found) == 2 and 0.28 <= max(found.values()) < 0.6
        assert set(sampling.child_seconds(found)) == set(found)
        child.communicate("\n\n")
    assert sampling.child_seconds(found) == {}
