from __future__ import annotations

import subprocess
import sys
import threading
import time

from measuring import sampling


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
