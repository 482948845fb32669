"""Move the timers of the switches that saw the events of a batch, in the transaction that dispatches these events."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from uuid import UUID

from runs.db.sql import database_now, execute_many
from triggers.matching.index import KEY_BYTES
from triggers.matching.match import Matched, Sighting
from triggers.matching.pending import Item
from triggers.switches import rows
from triggers.switches.rows import Place
from triggers.switches.switch import Switch
from triggers.switches.timer import Timer, Transition

TROUBLE = """
UPDATE triggers_switch SET
  turned_away = turned_away + %(turned_away)s::bigint,
  turned_away_at = CASE WHEN %(turned_away)s::bigint > 0 THEN clock_timestamp() ELSE turned_away_at END,
  error = CASE WHEN %(error)s::text <> '' THEN %(error)s::text ELSE error END,
  failed_at = CASE WHEN %(error)s::text <> '' THEN clock_timestamp() ELSE failed_at END
WHERE source_id = %(switch)s::uuid
"""


@dataclass(kw_only=True)
class Trouble:
    """Events of a batch that a switch could not watch."""

    turned_away: int = 0
    error: str = ""


@dataclass(kw_only=True)
class Book:
    """The timers of a batch and their changes."""

    now: datetime
    timers: dict[Place, Timer]
    counts: dict[UUID, int]
    touched: dict[Place, Timer] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    troubles: dict[UUID, Trouble] = field(default_factory=lambda: defaultdict(Trouble))

    def note(self, sighting: Sighting, item: Item) -> None:
        switch = sighting.switch
        if sighting.error:
            self.troubles[switch.id].error = sighting.error
            return
        place = place_of(sighting)
        if switch.recurring and place[1] not in switch.expected:
            return
        timer = self.timers.get(place) or self._new(switch, place, begins=sighting.begins)
        if timer is None:
            return
        self.touched[place] = timer
        if sighting.begins:
            timer.begin(switch, item, self.now)
        else:
            self.transitions += timer.see(switch, item, self.now)

    def _new(self, switch: Switch, place: Place, *, begins: bool) -> Timer | None:
        """A new timer; None: there are too many keys. Keys that await no event take at most half of the room."""
        if switch.recurring:  # its keys are listed
            self.timers[place] = Timer(source_id=switch.id, key=place[1])
            return self.timers[place]
        count, is_idle = self.counts.get(switch.id, 0), switch.started is not None and not begins
        if count >= (switch.most_keys // 2 if is_idle else switch.most_keys):
            self.troubles[switch.id].turned_away += not is_idle
            return None
        self.counts[switch.id] = count + 1
        self.timers[place] = Timer(source_id=switch.id, key=place[1])
        return self.timers[place]


def note(dispatched: Sequence[Matched]) -> None:
    """Apply the events in order. An event that begins the time of a switch and is also awaited by it ends the earlier
    time first.
    """
    seen = [
        (sighting, one.item) for one in dispatched for sighting in sorted(one.sightings, key=lambda each: each.begins)
    ]
    if not seen:
        return
    switches = {sighting.switch.id: sighting.switch for sighting, _ in seen}
    places = {place_of(sighting) for sighting, _ in seen if not sighting.error}
    timers = rows.read(places)
    new = {id for id, key in places - timers.keys()}
    book = Book(now=database_now(), timers=timers, counts=rows.count_keys(new))
    for sighting, item in seen:
        book.note(sighting, item)
    rows.tell(book.transitions, switches, book.now)
    rows.write(book.touched.values())
    for id, trouble in book.troubles.items():
        execute_many(TROUBLE, [{"switch": id, "turned_away": trouble.turned_away, "error": trouble.error}])


def place_of(sighting: Sighting) -> Place:
    encoded = sighting.key.encode()
    return sighting.switch.id, sighting.key if len(encoded) <= KEY_BYTES else f"sha256:{sha256(encoded).hexdigest()}"
