import ast
import atexit
import os
import shutil
import signal
import tempfile

import pytest

from gunreal.config import warning

# A shell without job control has what it starts in the background ignore SIGINT, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# As gunreal does before it loads TensorFlow, which some tests load first.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# A slow machine may say what it waits for, but not here.
warning._PATIENCE = 1e6

# Processes that the tests start share what JAX has compiled, which takes longer than the rest of most of them.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="jax-of-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


def pytest_collection_modifyitems(items):
    """The longest file comes first, so that no process is left alone with it at the end."""
    items.sort(key=lambda item: item.path.name != "test_learning.py")


class Skipped(pytest.Item):
    """A test of a file that is skipped as a whole."""

    def __init__(self, line, reason, **options):
        super().__init__(**options)
        self._line = line
        self.add_marker(pytest.mark.skip(reason=reason))

    def reportinfo(self):
        return self.path, self._line, self.name

    def runtest(self):
        raise AssertionError("it is skipped before")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skips each test of a file that is skipped as a whole. Otherwise pytest-xdist would not mention the file."""
    report = yield
    if report.skipped and isinstance(collector, pytest.Module):
        reason = report.longrepr[-1].removeprefix("Skipped: ")
        functions = [node for node in ast.parse(collector.path.read_bytes()).body if isinstance(node, ast.FunctionDef)]
        report.outcome, report.longrepr = "passed", None
        report.result = [
            Skipped.from_parent(collector, name=function.name, line=function.lineno - 1, reason=reason)
            for function in functions
            if function.name.startswith("test_")
        ]
    return report
