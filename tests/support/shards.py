"""The shards of a dispatcher as threads of this process, each with a session of its own."""

from collections.abc import Collection, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from triggers.dispatch import shard
from triggers.dispatch.batch import Batch
from triggers.dispatch.parts import divide
from triggers.dispatch.rules import Rules
from triggers.dispatch.shard import Request, dump
from triggers.matching.match import Matched


@dataclass
class InThreads:
    """Divides batches into up to `most` parts, however small; those with the numbers `dead` are not dispatched."""

    rules: Rules
    most: int
    dead: Collection[int] = ()

    def __call__(self, matched: Sequence[Matched], awaited: Set[UUID]) -> tuple[Batch, list[Matched]]:
        divided = divide(matched, awaited, most=self.most, least=1)
        with ThreadPoolExecutor(max(len(divided.parts), 1)) as pool:
            batches = pool.map(self.dispatch, range(len(divided.parts)), divided.parts)
        return sum(batches, Batch()), divided.rest

    def dispatch(self, number: int, part: Sequence[Matched]) -> Batch:
        if number in self.dead:
            return Batch(left=len(part))
        assert self.rules.version
        own = Rules()
        try:
            shard.begin_session(own)
            return shard.dispatch_part(Request(len(part), self.rules.version[0][:2], dump(part)), own, number)
        finally:
            connection.close()
