"""Edit the notes of an agent's memory: what the console and the API call."""

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from agents.guards.storable import storable
from agents.memory import MOST_NOTES, checked_key, checked_text
from agents.models import MemoryNote
from runs.exceptions import IllegalState
from runs.models.audit import record


@not_in_atomic_body
def create_note(agent: str, key: str, text: str, *, by: str) -> MemoryNote:
    """Give an agent a note. ValueError: it is too long, or there are too many; IllegalState: there is one of this key."""
    checked_key(key)
    checked_text(key, text)
    with transaction.atomic():
        if MemoryNote.objects.filter(agent=agent).count() >= MOST_NOTES:
            raise ValueError(f"agent {agent!r} has {MOST_NOTES:,} notes, as many as it may keep: delete some")
        note, is_new = MemoryNote.objects.get_or_create(
            agent=storable(agent, "the agent"), key=key, defaults={"text": storable(text, "the note"), "by": by}
        )
        if not is_new:
            raise IllegalState(f"Agent {agent} has a note {key!r} already; edit it.", status="exists")
        record(by, "create", note, agent=agent)
    return note


@not_in_atomic_body
def edit_note(note_id: int, text: str, *, trusted: bool, by: str, revision: int | None = None) -> MemoryNote:
    """Write the text of a note. A note that is not `trusted` taints each run that reads it. ValueError: the text is too long;
    IllegalState: it was written after `revision`."""
    with transaction.atomic():
        note = _lock(note_id, revision)
        checked_text(note.key, text)
        MemoryNote.objects.filter(pk=note.pk).update(
            text=storable(text, "the note"),
            is_tainted=not trusted,
            by=by,
            run_id=None,
            revision=F("revision") + 1,
            updated_at=Now(),
        )
        record(by, "edit", note, agent=note.agent, trusted=trusted)
    note.refresh_from_db()
    return note


@not_in_atomic_body
def delete_note(note_id: int, *, by: str, revision: int | None = None) -> None:
    """Delete a note. IllegalState: it was written after `revision`."""
    with transaction.atomic():
        note = _lock(note_id, revision)
        record(by, "delete", note, agent=note.agent)
        note.delete()


def _lock(note_id: int, revision: int | None) -> MemoryNote:
    note = MemoryNote.objects.select_for_update().get(pk=note_id)
    if revision is not None and note.revision != revision:
        raise IllegalState(
            f"The note was written meanwhile: it has revision {note.revision}, not {revision}. Look at it again.",
            status="edited",
        )
    return note
