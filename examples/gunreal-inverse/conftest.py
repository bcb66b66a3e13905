import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # so that the tests run without installing
