import atexit
import os
import shutil
import signal
import tempfile

# A shell without job control has what it starts in the background ignore SIGINT, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Processes that the tests start share what JAX has compiled, which takes longer than the rest of most of them.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="jax-of-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


def pytest_collection_modifyitems(items):
    """The longest file comes first, so that no process is left alone with it at the end."""
    items.sort(key=lambda item: item.path.name != "test_learning.py")
