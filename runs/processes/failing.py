"""Work of a process that fails whenever it is tried: a trouble of the process, once that has lasted for a while."""

import time
from dataclasses import dataclass, field

from runs.db.errors import name_of
from runs.processes.lease import Trouble

SHOWN_AFTER = 10.0  # seconds: work that succeeds when it is tried again is no trouble


@dataclass
class Failing:
    since: dict[str, tuple[float, str]] = field(
        default_factory=dict
    )  # by the name of the work; monotonic seconds, last error

    def failed(self, work: str, error: Exception) -> None:
        since, _ = self.since.get(work, (time.monotonic(), ""))
        self.since[work] = since, name_of(error)

    def succeeded(self, work: str) -> None:
        self.since.pop(work, None)

    @property
    def troubles(self) -> dict[str, Trouble]:
        now = time.monotonic()
        return {
            f"failing:{work}": Trouble(lasted=now - since, error=error)
            for work, (since, error) in list(self.since.items())  # another thread's may change meanwhile
            if now - since > SHOWN_AFTER
        }
