"""Find runs that wait for events of a batch. Replayed events do not wake waiting runs: they did so when first
dispatched.
"""

from collections.abc import Sequence
from uuid import UUID

from runs import waits
from triggers.matching.pending import Item, read_data, read_fields


def waits_ended_by(items: Sequence[Item], most: int) -> tuple[dict[int, UUID], set[UUID]]:
    """For up to `most` open waits the event that ends each, and the events that may end further waits. Uses an index, for
    any number of waits. Call it after the events are committed: waits that are registered later search past events."""
    new = [
        item
        for item in items
        if item.may_be_awaited and not item.is_resumption and waits.may_end_waits(item.type, item.source)
    ]
    shapes = waits.shapes_of(item.type for item in new) if new else {}
    awaited = [item for item in new if item.type in shapes]
    if not awaited:
        return {}, set()
    data = read_data({item.event_id for item in awaited if not item.is_large})
    large = {item.event_id for item in awaited if item.is_large}
    data |= read_fields(
        large, waits.paths_of(shape for item in awaited if item.is_large for shape in shapes[item.type])
    )
    hits, are_all = waits.hits_of(
        [
            (item.event_id, item.type, shape, hash)
            for item in awaited
            for shape, hash in waits.lookups(shapes[item.type], item.source, data.get(item.event_id))
        ],
        most,
    )
    return hits, set() if are_all else {item.event_id for item in awaited}
