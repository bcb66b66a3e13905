import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for rings.py, which test modules share
# A shell without job control has what it starts in the background ignore SIGINT, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
