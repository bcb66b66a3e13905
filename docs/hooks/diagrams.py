"""Shows Mermaid diagrams as pictures, so that no script from another server is needed.

MkDocs calls `on_page_markdown`, which replaces each Mermaid block with its picture in `docs/images/diagrams`. The name
of the picture is the hash of the block. A block without a picture is left to the browser. After a change of a diagram,
run `python docs/hooks/diagrams.py`, which needs Mermaid's command line (`npm install -g @mermaid-js/mermaid-cli`).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "images" / "diagrams"
BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.M | re.S)


def picture(text: str) -> Path:
    """The file of a diagram's picture."""
    return FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.svg"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replaces the Mermaid blocks of a page with their pictures."""
    up = "../" * page.file.src_uri.count("/")

    def shown(block: re.Match[str]) -> str:
        path = picture(block[1])
        return f"![Diagram]({up}{path.relative_to(DOCS).as_posix()})" if path.exists() else block[0]

    return BLOCK.sub(shown, markdown)


def main(options: list[str]) -> None:
    """Draws the diagrams that have no picture, and removes pictures without a diagram. `options` are for `mmdc`."""
    FOLDER.mkdir(exist_ok=True)
    wanted = {picture(text): text for page in DOCS.rglob("*.md") for text in BLOCK.findall(page.read_text())}
    for path, text in wanted.items():
        if not path.exists():
            command = ["mmdc", "--input", "-", "--output", str(path), "--backgroundColor", "white", *options]
            subprocess.run(command, input=text, text=True, check=True)
            width, height = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', path.read_text()).groups()  # its size in a page
            path.write_text(path.read_text().replace('width="100%"', f'width="{width}" height="{height}"', 1))
    for path in FOLDER.glob("*.svg"):
        if path not in wanted:
            path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
