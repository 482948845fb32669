"""How fast a backlog of no-ops goes: all of it is there at one moment, and the clock stops with the last one."""

import time
from dataclasses import dataclass

import psycopg

from bench.ground import names
from bench.ground.processes import Ground, Peer
from tests.support.stack import eventually

PATIENCE = 120.0  # seconds
COMPLETE = """
SELECT count(*) AS runs FROM triggers_event event
JOIN runs_processedevent ledger ON ledger.event_id = event.id
JOIN runs_run run ON run.id = ledger.run_id AND run.status = 'succeeded'
JOIN runs_attempt attempt ON attempt.run_id = run.id AND attempt.outcome = 'succeeded'
WHERE event.ce_id LIKE %s
"""


@dataclass(frozen=True, kw_only=True)
class Drain:
    """`cpu` is seconds per piece of work, in every process that has part in it."""

    rate: float
    cpu: float


def drain_wakeful(ground: Ground, count: int) -> Drain:
    """Events in the table → dispatcher → doorbell → worker → committed run, with its ledger row and attempt."""
    load = ground.wakeful_load("fill", count)
    with psycopg.connect(ground.stack.database_url, autocommit=True) as listener:
        listener.execute(f"LISTEN {names.DRAINED}")
        cpu = ground.wakeful_cpu()
        saw = load.go()
        if not list(listener.notifies(timeout=PATIENCE, stop_after=1)):
            raise TimeoutError(f"the backlog was not drained in {PATIENCE:g} s")
        seconds = time.time() - saw["began_at"]
    eventually(lambda: not ground.stack.query("SELECT FROM runs_outboxmessage LIMIT 1"))
    cpu = ground.wakeful_cpu() - cpu
    [complete] = ground.stack.query(COMPLETE, f"{saw['tag']}-%")
    assert complete["runs"] == count + 1, complete
    return Drain(rate=count / seconds, cpu=cpu / count)


def drain_peer(ground: Ground, peer: Peer, count: int) -> Drain:
    """Work in the queue → worker → done."""
    with peer.awake(), ground.peer_store as store:
        load = peer.load("fill", count)
        cpu = ground.peer_cpu(peer)
        saw = load.go()
        if not store.blpop([names.PEER_DRAINED], timeout=PATIENCE):
            raise TimeoutError(f"the queue of {peer.name} was not drained in {PATIENCE:g} s")
        if peer.is_done:  # the last to begin is not the last to end, where many are worked on at once
            eventually(peer.is_done, timeout=PATIENCE, every=0.02)
        seconds = time.time() - saw["began_at"]
        return Drain(rate=count / seconds, cpu=(ground.peer_cpu(peer) - cpu) / count)
