"""The part of a source's page about its runner: which process reads it, how far, its gaps, and the messages that are no events."""

from collections.abc import Iterator

from django.db.models import BinaryField
from django.db.models.functions import Substr
from django.template.defaultfilters import filesizeformat
from django.utils.safestring import SafeString

from config.console.parts.html import format_html, shortened
from config.console.parts.links import link, page
from config.console.parts.moments import distance, moment
from config.console.parts.sections import Facts, Notice, Section, Table, pretty
from runs.models import Worker
from runs.processes.alive import alive
from triggers.models import PoisonMessage, Reading, Source, SourceGap, WatchedSlot
from triggers.sources.runner import runners

POISON_SHOWN = GAPS_SHOWN = 50
BODY_CHARACTERS = 200
POSITION_CHARACTERS = 2_000  # a list may remember many thousands of items


def notice_of(source: Source) -> Notice:
    """A notice whether the source is read, and why not."""
    reading = Reading.objects.filter(source=source).exclude(owner=None).first()
    if not source.enabled:
        return Notice(text="Disabled: it is not read.", level="warning")
    if reading is None or not alive().filter(pk=str(reading.owner_id)).exists():
        if alive().filter(kind=Worker.Kind.SOURCES, draining_at=None).exists():
            return Notice(text="No process reads it yet; a sources process takes it over within seconds.")
        start = "Start one: manage.py sources."
        return Notice(
            text="No process reads it, because no sources process is alive.", level="warning", details=[start]
        )
    if reading.failing_since:
        text = f"It cannot be read; the first error came {distance(reading.failing_since)}: {reading.error}"
        return Notice(text=text, level="bad", details=[reading.remedy] if reading.remedy else [])
    if reading.held_since:
        return Notice(text="It is not read at the moment: too many events wait for dispatch.", level="warning")
    if reading.read_at is None:
        return Notice(text="It is read, without an error; no message has come yet.", level="good")
    return Notice(text="It is read, and its last answer was no error.", level="good")


def sections_of(source: Source) -> list[Section]:
    reading = Reading.objects.filter(source=source).first()
    slot = WatchedSlot.objects.filter(source=source).first()
    return [*([_reading(reading)] if reading else []), *(_slot(slot) if slot else []), _gaps(source), poison_of(source)]


def _reading(reading: Reading) -> Facts:
    owner = Worker.objects.filter(pk=str(reading.owner_id)).first() if reading.owner_id else None
    return Facts(
        title="Reading",
        rows=[
            ("Process", link(page("runs_worker", owner.pk), f"{owner.host}:{owner.pid}") if owner else ""),
            ("Reads it since", moment(reading.taken_at) if owner else ""),
            ("Last messages", moment(reading.read_at)),
            ("Messages read", f"{reading.read_count:,}"),
            ("Waiting at the source", f"{reading.lag:,}" if reading.lag is not None else ""),
            (
                "Position",
                shortened(pretty(reading.position), POSITION_CHARACTERS) if reading.position is not None else "",
            ),
            ("Errors in a row", reading.failures),
        ],
    )


def _slot(slot: WatchedSlot) -> Iterator[Section]:
    if slot.problem:
        yield Notice(text=slot.problem, level="bad" if slot.is_bad else "warning", details=[slot.remedy])
    yield Facts(
        title="Replication slot",
        rows=[
            ("Slot", slot.slot),
            ("Exists", "yes" if slot.exists else "no: manage.py slot create" if slot.seen_at else ""),
            ("Read by", slot.reader or ("nothing" if slot.exists else "")),
            ("WAL that the server keeps for it", _bytes(slot.retained)),
            ("Not read yet", _bytes(slot.behind)),
            ("Lost after another", _bytes(slot.safe) if slot.safe is not None else "no limit is set"),
            ("State of its WAL", slot.wal_status),
            ("Seen", moment(slot.seen_at)),
            ("Error of the last look", slot.error),
        ],
    )


def _bytes(number: int | None) -> str:
    return "" if number is None else filesizeformat(number)


def _gaps(source: Source) -> Table:
    kind = runners().get(source.kind)
    return Table(
        title="Gaps",
        note=f"Messages that were lost before they were read; the last {GAPS_SHOWN}. {kind.gaps.text if kind else ''}",
        headers=("Last found", "Times", "Stream", "From", "To", "Messages", "Reason", "Details"),
        rows=[
            (
                moment(gap.at),
                _times(gap),
                gap.stream,
                gap.start or "–",
                gap.end or "–",
                "not known" if gap.count is None else f"{gap.count:,}",
                gap.reason,
                gap.detail,
            )
            for gap in SourceGap.objects.filter(source=source).order_by("-at")[:GAPS_SHOWN]
        ],
        empty="None within the retention period." if kind and kind.gaps.are_seen else "None was seen.",
    )


def _times(gap: SourceGap) -> SafeString | str:
    return format_html("{}, since {}", f"{gap.times:,}", moment(gap.since)) if gap.since else "1"


def poison_of(source: Source) -> Table:
    kept = PoisonMessage.objects.filter(source=source)
    beginning = Substr("body", 1, 4 * BODY_CHARACTERS, output_field=BinaryField())
    return Table(
        title="Messages that could not become events",
        note=f"The last {POISON_SHOWN}. They count as read and do not stop the others.",
        headers=("Last", "Reason", "Id", "Origin", "Count", "Bytes", "Body"),
        rows=[
            (
                moment(one.last_at),
                one.reason,
                one.message_id,
                one.origin,
                f"{one.count:,}",
                f"{one.size:,}",
                bytes(one.beginning).decode(errors="replace")[:BODY_CHARACTERS],
            )
            for one in kept.annotate(beginning=beginning).defer("body").order_by("-last_at")[:POISON_SHOWN]
        ],
        empty="None within the retention period.",
    )
