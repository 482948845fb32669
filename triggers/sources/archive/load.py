"""Import archived events. Each has the id and identity that it had: a second import makes no second event. They count as
dispatched, so that an import wakes no agent; a replay dispatches them.

Lines are recorded a group at a time, so that an import that was interrupted is repeated from its beginning, or from any line.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import BytesIO
from typing import IO
from uuid import UUID

from django.conf import settings
from django.db import transaction
from uuid_utils.compat import uuid7

from agents.kernel.ids import first_id_at
from runs.db.sql import database_now
from runs.models.audit import record_about
from triggers.accept import Archived, ReservedType, accept_archived, require_free
from triggers.models import Source
from triggers.sources.archive.line import InvalidLine, Line, read

GROUP, GROUP_BYTES = 200, 4 * 2**20  # lines of one transaction, and their bytes; at least one
MOST_REFUSALS = 100  # that are named; all are counted
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # of ids
SKEW = timedelta(minutes=1)  # between the clocks that gave an event its id and its time


@dataclass(kw_only=True)
class Loaded:
    """The result of an import: `refused` lines, the first ones named with the reason."""

    lines: int = 0
    imported: int = 0
    known: int = 0
    without_payload: int = 0
    refused: int = 0
    reasons: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, number: int, reason: str) -> None:
        self.refused += 1
        if len(self.reasons) < MOST_REFUSALS:
            self.reasons.append((number, reason))


def longest_line() -> int:
    """A body as large as a source accepts, in base64 beside its JSON."""
    return int(settings.WAKEFUL_MAX_BODY) * 3 + 2**16


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file; one that is too long is cut, so that it is refused, and no memory is needed for it."""
    most = longest_line()
    while line := file.readline(most + 1):
        yield line
        while len(line) > most and not line.endswith(b"\n"):
            line = file.readline(most + 1)


def load(lines: Iterable[bytes], *, source: str = "", by: str, first: int = 1) -> Iterator[Loaded]:
    """Import lines, and yield the result so far after each group. `source`: the slug of the source of lines that name none.
    Raises Source.DoesNotExist."""
    slugs = dict(Source.objects.values_list("slug", "id"))
    if source and source not in slugs:
        raise Source.DoesNotExist(source)
    loaded = Loaded()
    for group in _groups(lines, first):
        archived = dict(_read(group, slugs, source, loaded))
        with transaction.atomic():
            _record(archived, loaded)
        loaded.lines += len(group)
        yield loaded
    detail = {"imported": loaded.imported, "known": loaded.known, "refused": loaded.refused}
    record_about(by, "import", "event", "*", **detail)
    yield loaded


def _groups(lines: Iterable[bytes], first: int) -> Iterator[list[tuple[int, bytes]]]:
    group: list[tuple[int, bytes]] = []
    total = 0
    for number, line in enumerate(lines, first):
        if group and (len(group) >= GROUP or total + len(line) > GROUP_BYTES):
            yield group
            group, total = [], 0
        group.append((number, line))
        total += len(line)
    if group:
        yield group


def _read(
    group: Iterable[tuple[int, bytes]], slugs: dict[str, UUID], source: str, loaded: Loaded
) -> Iterator[tuple[int, Archived]]:
    now = database_now()
    for number, text in group:
        if not text.strip():
            continue
        try:
            if len(text) > longest_line():
                raise InvalidLine(f"is longer than {longest_line():,} bytes")
            archived = _archived(read(text), slugs, source, now)
            require_free(archived)
            yield number, archived
        except (InvalidLine, ReservedType) as error:
            loaded.refuse(number, str(error))


def _archived(line: Line, slugs: dict[str, UUID], source: str, now: datetime) -> Archived:
    slug = line.source or source
    if slug not in slugs:
        raise InvalidLine(f"there is no source {slug!r}: create it" if slug else "names no source: say which")
    event_id, received_at = line.id or uuid7(), line.received_at or now
    if not EARLIEST <= received_at <= now + SKEW:
        raise InvalidLine("wakefulreceived is before 1970 or in the future")
    # A line of an earlier version arrived when its statement began, which may be hours before.
    if not first_id_at(received_at - SKEW) <= event_id < first_id_at(now + SKEW):
        raise InvalidLine("wakefulid is of a time before wakefulreceived, or of the future")
    is_removed = line.payload_removed_at is not None
    return Archived(
        id=event_id,
        received_at=received_at,
        body_sha256=line.body_sha256 or (sha256(line.body).hexdigest() if line.body else ""),
        payload_removed_at=line.payload_removed_at,
        source_id=slugs[slug],
        ce_source=line.ce_source,
        ce_id=line.ce_id,
        type=line.type,
        subject=line.subject,
        time=line.time,
        data=None if is_removed else line.data,
        data_error=line.data_error,
        body=None if is_removed else line.body,
        headers=dict(line.headers or {}),
        target_id=line.target_id,
        root_id=line.root_id,
        cause_event_id=line.cause_event_id,
        cause_run_id=line.cause_run_id,
        depth=line.depth,
        chain=list(line.chain),
        is_tainted=line.is_tainted,
    )


def _record(archived: dict[int, Archived], loaded: Loaded) -> None:
    results = accept_archived(list(archived.values()))
    for (number, event), result in zip(archived.items(), results, strict=True):
        if result == "taken":
            loaded.refuse(number, f"another event has its id, {event.id}, or its source was deleted meanwhile")
        elif result == "known":
            loaded.known += 1
        else:
            loaded.imported += 1
            loaded.without_payload += event.payload_removed_at is not None


def load_all(text: bytes, *, source: str, by: str) -> Loaded:
    """Import the lines of a text."""
    *_, loaded = load(BytesIO(text), source=source, by=by)
    return loaded
