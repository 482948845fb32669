"""Revisions of a checklist: its definition as JSON, and the difference between two definitions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from agents.kernel.durations import in_words
from agents.models import Checklist, ChecklistItem, ChecklistRevision

KEPT = 500  # revisions of a checklist


def definition_of(checklist: Checklist, items: Sequence[ChecklistItem]) -> dict[str, Any]:
    """The definition of a checklist, which people decide; outcomes are left out."""
    return {
        "silenced_until": _time(checklist.silenced_until),
        "items": [
            {
                "id": item.pk,
                "text": item.text,
                "every": item.every and item.every.total_seconds(),
                "paused": item.paused_at is not None,
                "silenced_until": _time(item.silenced_until),
            }
            for item in items
        ],
    }


def write_revision(checklist: Checklist, by: str, *, vouches: bool = True) -> None:
    """Number and keep the definition as it is now, in the caller's transaction, which holds the checklist's lock. `vouches`: the person
    has saved its items, and has not only silenced or paused some."""
    checklist.revision += 1
    checklist.save(update_fields=["revision"])
    definition = definition_of(checklist, list(checklist.items.all())) | ({} if vouches else {"vouches": False})
    ChecklistRevision.objects.create(checklist=checklist, number=checklist.revision, by=by, definition=definition)
    checklist.revisions.filter(number__lte=checklist.revision - KEPT).delete()


@dataclass(frozen=True, kw_only=True)
class Change:
    """A line of a difference: `before` is empty for something new, `after` for something removed."""

    what: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.before or '–'} → {self.after or '–'}"


def difference(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[Change]:
    """The changes that lead from one definition to the next; None: there was none before."""
    return list(_changes(before or {"silenced_until": None, "items": []}, after))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    old, new = ({item["id"]: item for item in one["items"]} for one in (before, after))
    for id, item in new.items():
        if id not in old:
            yield Change(what="added", after=_in_words(item))
        else:
            yield from _changed(old[id], item)
    for id, item in old.items():
        if id not in new:
            yield Change(what="removed", before=_in_words(item))
    kept_before, kept_after = [id for id in old if id in new], [id for id in new if id in old]
    if kept_before != kept_after:
        yield Change(
            what="order",
            before=" · ".join(old[id]["text"] for id in kept_before),
            after=" · ".join(new[id]["text"] for id in kept_after),
        )
    if before["silenced_until"] != after["silenced_until"]:
        yield Change(what="silenced until", before=before["silenced_until"] or "", after=after["silenced_until"] or "")


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    name = after["text"]
    if before["text"] != name:
        yield Change(what="text", before=before["text"], after=name)
    if before["every"] != after["every"]:
        yield Change(what=f"interval of {name}", before=_every(before["every"]), after=_every(after["every"]))
    if before["paused"] != after["paused"]:
        yield Change(what=name, before=_state(before), after=_state(after))
    if before["silenced_until"] != after["silenced_until"]:
        yield Change(
            what=f"{name} silenced until", before=before["silenced_until"] or "", after=after["silenced_until"] or ""
        )


def _in_words(item: Mapping[str, Any]) -> str:
    return f"{item['text']} ({_every(item['every'])}{', paused' if item['paused'] else ''})"


def _every(seconds: float | None) -> str:
    return "each run" if seconds is None else f"every {in_words(timedelta(seconds=seconds))}"


def _state(item: Mapping[str, Any]) -> str:
    return "paused" if item["paused"] else "on"


def _time(instant: Any) -> str | None:
    return instant.isoformat(timespec="seconds") if instant else None
