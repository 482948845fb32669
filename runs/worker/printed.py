"""What code prints in a child of a worker: it reaches the same files as the log, so it has no secrets either."""

import sys
from typing import Any, TextIO, cast

from agents.kernel.redaction import redacted


class Printed:
    """A stream in front of another. A secret is found where one call writes all of it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def print_without_secrets() -> None:
    sys.stdout, sys.stderr = cast(TextIO, Printed(sys.stdout)), cast(TextIO, Printed(sys.stderr))
