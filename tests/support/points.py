"""Failpoints of processes that run: a folder that they were given as WAKEFUL_FAILPOINTS (runs/failpoints.py)."""

from contextlib import suppress
from pathlib import Path


class Points:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    @property
    def env(self) -> dict[str, str]:
        return {"WAKEFUL_FAILPOINTS": str(self.folder)}

    def arm(self, name: str, action: str) -> None:
        """What the first process to come there does, once."""
        waiting = self.folder / f".{name}"
        waiting.write_text(action)
        waiting.rename(self.folder / name)

    def hit(self, name: str) -> int:
        """The pid of the process that came there; 0 if none has."""
        with suppress(FileNotFoundError, ValueError):
            return int((self.folder / f"{name}.hit").read_text())
        return 0

    def any_hit(self) -> bool:
        return any(self.folder.glob("*.hit"))

    def release(self, name: str) -> None:
        """Let the process that stands still there go on; no other will stop there."""
        for file in (name, f"{name}.hit"):
            (self.folder / file).unlink(missing_ok=True)

    def release_all(self) -> None:
        for file in self.folder.iterdir():
            file.unlink(missing_ok=True)
