from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from random import uniform
from typing import Any

from django.conf import settings


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a run is executed; a snapshot travels in `Run.policy`. Durations are seconds."""

    queue: str = "default"
    priority: int = 5
    timeout: float = 0
    retries: int = 3
    backoff: float = 1
    backoff_factor: float = 3
    backoff_max: float = 900
    pause_after: int = 10
    overlap: str = "allow"

    @classmethod
    def load(cls, stored: dict[str, Any]) -> "Policy":
        """From a trigger's or a run's JSON; unknown keys are another version's and ignored, missing ones get defaults."""
        known = {field.name for field in fields(cls)}
        policy = cls(**{name: value for name, value in stored.items() if name in known})
        if policy.timeout:
            return policy
        return cls(**{**asdict(policy), "timeout": settings.WAKEFUL_ATOMIC_TIMEOUT.total_seconds()})

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    def attempts_left(self, attempt: int) -> bool:
        return attempt <= self.retries

    def backoff_after(self, attempt: int) -> timedelta:
        """Exponential, with ± 20 % jitter so that what failed together does not return together."""
        seconds = min(self.backoff * self.backoff_factor ** (attempt - 1), self.backoff_max)
        return timedelta(seconds=seconds * uniform(0.8, 1.2))
