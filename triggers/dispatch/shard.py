"""A shard: the process that dispatches parts of batches for the dispatcher that started it (`triggers.dispatch.shards`)."""

import copyreg
import io
import pickle
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from django.db import connection, transaction

from runs.db import nudge
from runs.db.errors import log_failure
from runs.db.listen import set_lazy_commits, set_timeouts
from runs.db.sql import fetch
from runs.db.trip import commit_in, one_trip, reach
from runs.failpoints import failpoint
from runs.processes.frames import receive, send
from triggers.dispatch.batch import MOST, Batch, settle_matched
from triggers.dispatch.begin import begin
from triggers.dispatch.leadership import NAME, SESSION
from triggers.dispatch.rules import Rules
from triggers.matching.index import Rule
from triggers.matching.match import Matched, Outgoing, piece_of
from triggers.matching.matches import Match
from triggers.matching.pending import Item

log = structlog.get_logger(__name__)

# A deployment may replace the code of a dispatcher that runs: a shard of it would then start with the new code.
FORMAT = repr([[each.name for each in fields(kind)] for kind in (Matched, Match, Item, Outgoing, Batch)]).encode()


class Request(NamedTuple):
    """A part of a batch: how many events, matched with which version of the rules."""

    events: int
    version: Sequence[Any]
    part: bytes


def serve(number: int, descriptor: int) -> None:
    """Dispatch parts until the dispatcher closes the socket or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the dispatcher decides
    nudge.stay_awake()
    rules = Rules()
    with socket.socket(fileno=descriptor) as dispatcher:
        try:
            send(dispatcher, FORMAT)
            while (request := receive(dispatcher)) is not None:
                asked = Request(*pickle.loads(request))  # noqa: S301  (of the process that started this one)
                send(dispatcher, pickle.dumps(answer(asked, rules, number)))
        except ConnectionError:
            log.warning("shard.dispatcher_gone", shard=number)


def answer(request: Request, rules: Rules, number: int) -> Batch | None:
    """What came of the part; None: it failed."""
    try:
        begin_session(rules)
        return dispatch_part(request, rules, number)
    except Exception as error:
        log_failure(log, "shard", error)
        connection.close()
        return None


def begin_session(rules: Rules) -> None:
    """After each (re)connection: like the session of a dispatcher, which others may end if it is stuck. After a failover or a restore, the
    version that is known may be that of other rules, so they are read again."""
    if connection.connection is None:
        rules.version = None
        set_timeouts()
        set_lazy_commits()
        fetch(NAME, [SESSION])


def dispatch_part(request: Request, rules: Rules, number: int) -> Batch:
    nothing = Batch(left=request.events)
    if not is_at(rules, request.version):
        rules.current()
    if not is_at(rules, request.version):
        return nothing  # edited a moment ago: the dispatcher matches the part again
    matched = load(request.part, rules.index.by_id)
    with transaction.atomic():
        begun = begin(matched, piece_of(MOST), shard=number)
        if begun is None or [*begun.version[0][:2]] != [*request.version]:
            return nothing
        batch, left = settle_matched(begun, begun.undispatched(matched))
        with one_trip() as trip:
            trip.add_all(left)
            reach("before_shard_commit", trip)
            commit_in(trip)
    failpoint("after_shard_commit")
    return batch


def is_at(rules: Rules, version: Sequence[Any]) -> bool:
    return rules.version is not None and [*rules.version[0][:2]] == [*version]


def dump(matched: Sequence[Matched]) -> bytes:
    """The events as a shard loads them, which has the rules itself."""
    found = io.BytesIO()
    pickler = pickle.Pickler(found, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**copyreg.dispatch_table, Rule: lambda rule: (_rule_of, (rule.id,))}
    pickler.dump(matched)
    return found.getvalue()


def load(part: bytes, rules: Mapping[UUID, Rule]) -> list[Matched]:
    matched: list[Matched] = _Unpickler(io.BytesIO(part), rules).load()
    return matched


class _Unpickler(pickle.Unpickler):
    def __init__(self, part: io.BytesIO, rules: Mapping[UUID, Rule]) -> None:
        super().__init__(part)
        self.rules = rules

    def find_class(self, module: str, name: str) -> Any:
        return self.rules.__getitem__ if name == _rule_of.__name__ else super().find_class(module, name)


def _rule_of(id: UUID) -> Rule:
    """Stands in a pickle for the rule with this id."""
    raise NotImplementedError(id)
