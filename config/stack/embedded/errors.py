from pathlib import Path


class EmbeddedError(Exception):
    """The embedded servers cannot run; the message names the reason and what to do."""


class Occupied(EmbeddedError):
    """Another process holds the folder."""

    def __init__(self, home: Path, holder: str) -> None:
        super().__init__(
            f"Another stack (process {holder or 'unknown'}) already runs on {home}. "
            f"Stop it{f' (kill {holder})' if holder else ''}, or start this one with another WAKEFUL_HOME and WAKEFUL_PORT."
        )
