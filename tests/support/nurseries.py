"""The prepared processes that processes of stacks are forked from: one for each shape of settings."""

from collections.abc import Mapping

from config.stack.nursery import Nursery
from tests.support.servers import common

# What decides which modules a process loads, and what they read while they are loaded. Other settings are settled in the child; with
# another variable that is no setting it executes its command.
SHAPING = ("WAKEFUL_APPS", "WAKEFUL_DEMO", "WAKEFUL_LIBRARY", "PYTHONPATH", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVERS = ("WAKEFUL_HOME", "DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")
MOST = 3  # alive at once: each has some 150 MB


def _shape(env: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(env.get(name) for name in SHAPING)


class Nurseries:
    def __init__(self) -> None:
        self._of: dict[tuple[str | None, ...], Nursery] = {}

    def of(self, env: Mapping[str, str]) -> Nursery:
        """The one that fits this environment; the one that was not used for longest makes way for a new one."""
        shape = _shape(env)
        nursery = self._of.pop(shape, None)
        if nursery is None:
            while len(self._of) >= MOST:
                self._of.pop(next(iter(self._of))).close()
            nursery = Nursery(common() | {name: env[name] for name in (*SHAPING, *SERVERS) if name in env})
        self._of[shape] = nursery
        return nursery

    def forget(self, env: Mapping[str, str]) -> None:
        """Files that it has loaded have changed: another one is made when the next process is started."""
        if nursery := self._of.pop(_shape(env), None):
            nursery.close()

    def close(self) -> None:
        while self._of:
            self._of.popitem()[1].close()


nurseries = Nurseries()
