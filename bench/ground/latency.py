"""From an event's commit (the peer: from the broker having the task) to the first line of what it wakes."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.ground import names
from bench.ground.processes import Ground, Peer
from tests.support.stack import eventually

SEEN = """
SELECT event.ce_id AS id, run.result::float8 AS at FROM triggers_event event
JOIN runs_run run ON run.event_ids = ARRAY[event.id]
WHERE event.ce_id = ANY(%s) AND run.status = 'succeeded'
"""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Seconds. `from_call` counts the writing of the event, or the publishing, as well."""

    p50: float
    p99: float
    from_call_p50: float


def latency_of_wakeful(ground: Ground, count: int, rate: float) -> Latency:
    sent = ground.wakeful_load("send", count, rate).go()

    def seen() -> dict[str, float]:
        rows = ground.stack.query(SEEN, list(sent))
        return {row["id"]: row["at"] for row in rows} if len(rows) == count else {}

    return measured(sent, eventually(seen))


def latency_of_peer(ground: Ground, peer: Peer, count: int, rate: float) -> Latency:
    with peer.awake(), ground.peer_store as store:
        sent = peer.load("send", count, rate).go()
        eventually(lambda: store.llen(names.PEER_SEEN) == count)
        lines = [line.split() for line in store.lrange(names.PEER_SEEN, 0, -1)]
        store.delete(names.PEER_SEEN)
    return measured(sent, {number: float(at) for number, at in lines})


def measured(sent: dict[str, Sequence[float]], seen: dict[str, float]) -> Latency:
    from_commit = sorted(seen[id] - committed_at for id, (_, committed_at) in sent.items())
    from_call = sorted(seen[id] - called_at for id, (called_at, _) in sent.items())
    return Latency(
        p50=quantile(from_commit, 0.5), p99=quantile(from_commit, 0.99), from_call_p50=quantile(from_call, 0.5)
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    return ordered[max(0, -int(-len(ordered) * share // 1) - 1)]
