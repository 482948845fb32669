"""What the tests of durable runs say again and again: a stack with the courier's agents, the receiver they deal with, and
failpoints that are armed while its processes run."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.integration.protocol import emit, in_status, outcomes, run_of, runs
from tests.support.points import Points
from tests.support.receiver import Receiver
from tests.support.stack import ROOT, Process, Stack, eventually

__all__ = ["Courier", "eventually"]

APPS = {"WAKEFUL_APPS": "courier", "PYTHONPATH": str(ROOT / "tests" / "userapps")}
HASTY = {"WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "0.75s", "WAKEFUL_SAFETY_LOOK": "2s"}
FINISHED = ("succeeded", "failed", "cancelled")


class Courier:
    def __init__(
        self, make_stack: Callable[..., Stack], receiver: Receiver, env: Mapping[str, str] | None = None
    ) -> None:
        self.receiver = receiver
        env = {**APPS, **HASTY, "COURIER_BASE_URL": receiver.address, **(env or {})}
        self.stack: Stack = make_stack(env=env, agents=True)
        self.stack.query("UPDATE triggers_trigger SET policy = policy || '{\"backoff\": 0.2}'")
        with self.stack.orm():
            from triggers.api.tokens import ensure_token

            ensure_token("test", self.stack.env["WAKEFUL_API_TOKEN"], ["*"])
        self.points: dict[str, Points] = {}
        self.processes: dict[str, Process] = {}
        self.resolved: Counter[str] = Counter()
        self.sent = 0

    def start(self, kind: str, **options: Any) -> Process:
        """One more process, with failpoints of its own: `processes` and `points` have it by its name, such as worker-1."""
        name = f"{kind}-{sum(process.kind == kind for process in self.processes.values()) + 1}"
        self.points[name] = Points(self.stack.folder / f"points-{name}")
        self.processes[name] = self.stack.start(kind, env=self.points[name].env, **options)
        return self.processes[name]

    def up(self) -> None:
        """Web, a dispatcher and a worker with a single child."""
        for kind in ("web", "dispatcher", "worker"):
            self.start(kind, concurrency=1, wait=False)
        for process in self.processes.values():
            process.wait_ready()

    def emit(self, type: str, **data: Any) -> str:
        self.sent += 1
        return emit(self.stack, type, f"{type}-{self.sent}", **data)

    def run(self, event: str) -> dict[str, Any]:
        return run_of(self.stack, event)

    def waiting(self, event: str, key: str) -> dict[str, Any]:
        """The run of an event, once it has come to wait for this, though that may be over by now."""
        query = "EXISTS (SELECT FROM runs_wait WHERE run_id = runs_run.id AND runs_wait.key = %s) AND %s::uuid = ANY(event_ids)"
        return eventually(lambda: runs(self.stack, query, key, event))[0]

    def finished(self, event: str, timeout: float = 30) -> dict[str, Any]:
        """The run of an event, once it has finished; whatever it is uncertain of on the way is resolved."""
        run = self.run(event)

        def look() -> dict[str, Any] | None:
            [now] = runs(self.stack, "id = %s", run["id"])
            if now["status"] == "uncertain":
                self.resolve(now)
            return now if now["status"] in FINISHED else None

        return eventually(look, timeout) or {}

    def resolve(self, run: dict[str, Any]) -> None:
        """Say what really happened, as the receiver knows."""
        query = "SELECT key FROM runs_step WHERE run_id = %s AND status = 'started'"
        [step] = self.stack.query(query, run["id"])
        key = f"{run['id']}:{step['key']}"
        if self.receiver.bodies("/ring", key):
            resolution = {"outcome": "happened", "result": self.receiver.receipts[key]}
        else:
            resolution = {"outcome": "did_not_happen"}
        answer = self.stack.api("POST", f"/api/v1/runs/{run['id']}/resolve/", resolution)
        assert answer.status == 200, answer.body
        self.resolved[str(resolution["outcome"])] += 1

    def outcomes(self, run: dict[str, Any]) -> list[str]:
        return outcomes(self.stack, run)

    def entries(self, run: dict[str, Any]) -> list[str]:
        rows = self.stack.query("SELECT step FROM courier_entry WHERE run = %s ORDER BY step", run["id"])
        return [row["step"] for row in rows]

    def waits(self, run: dict[str, Any]) -> list[tuple[str, str]]:
        rows = self.stack.query("SELECT key, status FROM runs_wait WHERE run_id = %s ORDER BY position", run["id"])
        return [(row["key"], row["status"]) for row in rows]

    def in_status(self, event: str, status: str) -> dict[str, Any]:
        return in_status(self.stack, event, status)

    def verify(self) -> None:
        """Every promise that `manage.py verify` knows, and nothing is left to do."""
        left = "SELECT (SELECT count(*) FROM runs_outboxmessage) + (SELECT count(*) FROM triggers_event WHERE dispatched_at IS NULL) AS n"
        eventually(lambda: self.stack.query(left)[0]["n"] == 0)
        self.stack.manage("verify", "--drained")
