"""How many bytes each page of the console has, in `pages.txt`: a change that makes one larger changes the table, with the reason."""

import os
from pathlib import Path

FILE = Path(__file__).with_name("pages.txt")
HEAD = "# page, bytes"
PART, BYTES = 0.05, 1000  # ids, times and tokens are longer or shorter


def check_size(page: str, content: bytes) -> None:
    if os.environ.get("WRITE"):
        _write(_read() | {page: len(content)})
    kept = _read()[page]
    assert abs(len(content) - kept) <= kept * PART + BYTES, f"{page} has {len(content)} bytes"


def _read() -> dict[str, int]:
    lines = [line.split() for line in FILE.read_text().splitlines()[1:]] if FILE.exists() else []
    return {page: int(size) for page, size in lines}


def _write(sizes: dict[str, int]) -> None:
    width = max(map(len, sizes))
    FILE.write_text("\n".join([HEAD, *(f"{page:{width}} {size:7}" for page, size in sorted(sizes.items()))]) + "\n")
