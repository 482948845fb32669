"""The long-term memory of an agent: small notes by key, which its later runs read and search.

Written with the run, or with the step of a durable run, by compare-and-set. A note that a tainted run wrote is untrusted: it
taints each run that reads it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from agents.guards.storable import storable
from agents.journal.protocol import Place
from agents.kernel.effects import Effects, Written

from .exceptions import StateConflict
from .state import Leave, Revisions, Value

KEY_LENGTH = 150
TEXT_LENGTH = 4_000
MOST_NOTES = 1_000  # notes of an agent
MOST_FOUND = 50
MOST_WORDS = 20  # words of a search
WORD_LENGTH = 200  # characters of a word that a search compares
WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, kw_only=True)
class Note:
    """A note as a run reads it. `run`: the run that wrote it; None: a person wrote it. `is_tainted`: that run had seen
    untrusted data, or this agent acts by the connections of another person than the one who wrote it, or its instructions then.
    """

    key: str
    text: str
    revision: int
    is_tainted: bool
    run: UUID | None
    updated_at: datetime

    def dump(self) -> dict[str, Any]:
        stored = {"run": self.run and str(self.run), "updated_at": self.updated_at.isoformat()}
        return {**asdict(self), **stored}

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> "Note":
        run, at = stored["run"], datetime.fromisoformat(stored["updated_at"])
        return cls(**{**stored, "run": run and UUID(run), "updated_at": at})


class Keeper(Protocol):
    """The run that reads and writes the notes."""

    id: UUID

    @property
    def is_tainted(self) -> bool: ...
    @property
    def effects(self) -> Effects: ...
    def taint(self) -> None: ...


class Memory(Revisions):
    """`run.memory`: the notes of the run's agent."""

    def __init__(self, agent: str, leave: Leave, value: Value, run: Keeper) -> None:
        super().__init__()
        self._agent = agent
        self._leave = leave
        self._value = value
        self._run = run

    def get(self, key: str) -> Note | None:
        """The note of this key; in a durable run the same on every replay."""
        found = self._value(f"note {checked_key(key)}", lambda: self._found(key__exact=key))
        self._revisions[key] = found[0]["revision"] if found else 0
        return self._read(found)[0] if found else None

    def search(self, text: str, limit: int = 10) -> list[Note]:
        """The notes with most of these words, or words that begin so, in their key or text; without words, the newest."""
        if not 1 <= limit <= MOST_FOUND:
            raise ValueError(f"memory.search: limit {limit} is not between 1 and {MOST_FOUND}")
        notes = self._read(self._value("notes", lambda: _search(self._agent, text, limit)))
        self._revisions.update({note.key: note.revision for note in notes})
        return notes

    def put(self, key: str, text: str, *, revision: int | None = None) -> int:
        """Write the note, and return its new revision. StateConflict (a retry): it does not have this `revision` (0: there is
        none yet); by default the one that this run has read, if it has. ValueError: it is too long, or there are too many."""
        checked_text(checked_key(key), text)
        seen = self._revisions.get(key) if revision is None else revision
        place = Place(name=f"put note {key}", is_numbered=True)
        written: int = self._leave(place, lambda step: self._write(key, storable(text, "a note"), seen))
        self._revisions[key] = written
        return written

    def delete(self, key: str, *, revision: int | None = None) -> bool:
        """Delete the note; was there one? StateConflict (a retry): as for `put`."""
        seen = self._revisions.get(checked_key(key)) if revision is None else revision
        place = Place(name=f"delete note {key}", is_numbered=True)
        gone: bool = self._leave(place, lambda step: self._delete(key, seen))
        self._revisions[key] = 0
        return gone

    def _read(self, found: list[dict[str, Any]]) -> list[Note]:
        notes = [Note.load(stored) for stored in found]
        if any(note.is_tainted for note in notes):
            self._run.taint()
        return notes

    def _found(self, **which: Any) -> list[dict[str, Any]]:
        return _dumped(self._rows().filter(**which), self._agent)

    def _write(self, key: str, text: str, seen: int | None) -> int:
        from django.db.models import F
        from django.db.models.functions import Now

        from .models import MemoryNote

        is_tainted = self._run.is_tainted
        written = {"text": text, "is_tainted": is_tainted, "run_id": self._run.id, "by": ""}
        known = self._rows().filter(key=key).values_list("revision", flat=True).first()
        if known is None:
            if seen:
                raise self._conflict(key)
            if self._rows().count() >= MOST_NOTES:
                raise ValueError(f"agent {self._agent!r} has {MOST_NOTES:,} notes, as many as it may keep: delete some")
            _, is_new = MemoryNote.objects.get_or_create(agent=self._agent, key=key, defaults=written)
            if not is_new:
                raise self._conflict(key)
            revision = 1
        else:
            # Without a revision to compare, the one that is there now: of two such writers, one is retried.
            compared = known if seen is None else seen
            changed = {**written, "revision": F("revision") + 1, "updated_at": Now()}
            if not self._rows().filter(key=key, revision=compared).update(**changed):
                raise self._conflict(key)
            revision = compared + 1
        if not is_tainted:
            self._run.effects.written.append(Written(kind="note", name=key))
        return revision

    def _delete(self, key: str, seen: int | None) -> bool:
        rows = self._rows().filter(key=key)
        if seen is None:
            return bool(rows.delete()[0])
        if rows.exclude(revision=seen).exists() or (seen and not rows.filter(revision=seen).delete()[0]):
            raise self._conflict(key)
        return seen > 0

    def _conflict(self, key: str) -> StateConflict:
        return StateConflict(f"note {key!r} of agent {self._agent!r} has another revision: it was written meanwhile")

    def _rows(self) -> Any:
        from .models import MemoryNote

        return MemoryNote.objects.filter(agent=self._agent)


def _dumped(rows: Iterable[Any], agent: str) -> list[dict[str, Any]]:
    """The notes as this agent reads them. If it acts by a person's own connections, one that another person has written is untrusted, and
    one of a run before that person alone wrote its instructions."""
    from .models import PromptAgentVersion

    found = list(rows)
    acts_for = PromptAgentVersion.acts_for(agent) if any(not row.is_tainted for row in found) else None
    since = PromptAgentVersion.own_since(agent, acts_for) if acts_for else None

    def is_of_others(row: Any) -> bool:
        return bool(row.by != f"admin:{acts_for}" if row.by else since and row.updated_at < since)

    notes = [
        Note(
            key=row.key,
            text=row.text,
            revision=row.revision,
            is_tainted=row.is_tainted or bool(acts_for and is_of_others(row)),
            run=row.run_id,
            updated_at=row.updated_at,
        )
        for row in found
    ]
    return [note.dump() for note in notes]


def searched(rows: Any, text: str) -> Any:
    """The rows with any word of the text, those that fit best first; without words, the newest first."""
    from django.contrib.postgres.search import SearchQuery, SearchRank
    from django.db.models import F

    words = list(dict.fromkeys(WORD.findall(text.lower())))[:MOST_WORDS]
    if not words:
        return rows.order_by("-updated_at", "-id")
    # PostgreSQL refuses a word of more than 2,046 bytes.
    query = SearchQuery(" | ".join(f"{word[:WORD_LENGTH]}:*" for word in words), search_type="raw", config="simple")
    found = rows.filter(words=query).annotate(rank=SearchRank(F("words"), query))
    return found.order_by("-rank", "-updated_at", "-id")


def _search(agent: str, text: str, limit: int) -> list[dict[str, Any]]:
    from .models import MemoryNote

    return _dumped(searched(MemoryNote.objects.filter(agent=agent), text)[:limit], agent)


def checked_key(key: str) -> str:
    """Return the key. ValueError: it cannot be the key of a note."""
    if not isinstance(key, str) or not key.strip() or len(key) > KEY_LENGTH:
        raise ValueError(f"the key of a note is a text of 1 to {KEY_LENGTH} characters, not {str(key)[:200]!r}")
    storable(key, "the key of a note")
    return key


def checked_text(key: str, text: str) -> str:
    """Return the text. ValueError: it is empty or too long."""
    if not isinstance(text, str) or not text.strip() or len(text) > TEXT_LENGTH:
        raise ValueError(f"note {key!r}: write a text of 1 to {TEXT_LENGTH:,} characters")
    storable(text, f"note {key!r}")
    return text
