"""Files that arrive, change, move and go: what each leaves behind shows whether it is whole, and which events it must cause."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

Told = tuple[str, str, str]  # type, path, fingerprint

PIECES = 4
PAUSE = 0.5  # seconds between two pieces of a file that is written slowly
DIGEST = 64  # characters


def whole(text: str) -> bytes:
    """A content that ends with its own digest."""
    return text.encode() + sha256(text.encode()).hexdigest().encode()


def is_whole(content: bytes) -> bool:
    return content[-DIGEST:] == sha256(content[:-DIGEST]).hexdigest().encode()


class MovingFiles:
    def __init__(self, directory: Path, count: int, *, seed: int = 1) -> None:
        self.directory = directory
        self.random = random.Random(seed)
        self.now = {directory / f"{number % 20}" / f"{number}.csv": self._content(number) for number in range(count)}
        self.expected: Counter[Told] = Counter()

    def arrive(self) -> None:
        """Half of the files slowly, under their names; the others are renamed when they are whole."""
        for folder in {path.parent for path in self.now}:
            folder.mkdir(parents=True)
        paths = list(self.now)
        slow, quick = paths[::2], paths[1::2]
        for piece in range(PIECES):
            for path in slow:
                content = self.now[path]
                length = len(content) // PIECES + 1
                with path.open("ab") as file:
                    file.write(content[piece * length : (piece + 1) * length])
            for path in quick[piece::PIECES]:
                self._put(path, self.now[path])
            time.sleep(PAUSE)
        for path in paths:
            self._expect("created", path)

    def move(self) -> None:
        """A fifth each is replaced, truncated and written again, renamed, and removed."""
        for number, path in enumerate(list(self.now)):
            match number % 5:
                case 0:
                    self.now[path] = self._content(number)
                    self._put(path, self.now[path])
                    self._expect("changed", path)
                case 1:
                    self.now[path] = whole(f"short {number}")
                    path.write_bytes(self.now[path])
                    self._expect("changed", path)
                case 2:
                    target = path.with_name(f"moved-{path.name}")
                    path.rename(target)
                    self.now[target] = self.now.pop(path)
                    self._expect("renamed", target)
                case 3:
                    path.unlink()
                    self._expect("vanished", path)
                    del self.now[path]

    def missing(self, found: Counter[Told]) -> Counter[Told]:
        return self.expected - found

    def _expect(self, change: str, path: Path) -> None:
        fingerprint = f"sha256:{sha256(self.now[path]).hexdigest()}"
        self.expected[f"file.{change}", str(path), fingerprint] += 1

    def _put(self, path: Path, content: bytes) -> None:
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(content)
        os.replace(part, path)

    def _content(self, number: int) -> bytes:
        return whole(f"{number} {self.random.random()} " * self.random.randrange(1, 200))


def file_events(query: Callable[..., list[dict[str, str]]]) -> Counter[Told]:
    """The events of files in the database of a stack."""
    rows = query(
        "SELECT type, data->>'path' AS path, data->>'fingerprint' AS print FROM triggers_event WHERE type LIKE 'file.%%'"
    )
    return Counter((row["type"], row["path"], row["print"]) for row in rows)
