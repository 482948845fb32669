"""Gaps: messages that a source lost before they were read. A batch has its place in each of its streams; the process
compares it with what it has stored, and a gap between the two is an event, a problem, and a line on the source's page.

A stream is anything with positions of its own: a stream, a partition of a topic, a slot. Places are whole numbers that
rise by one for each message, but for spans that are not `is_counted`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why messages have no events."""

    TRIMMED = "trimmed"  # deleted before they were read
    RECREATED = "recreated"  # the stream is another one than before: its end may not have been read
    RESTORED = "restored"  # the stream was set back: what it has lost is not known
    SKIPPED = "skipped"  # more were there than are read at once
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """Whether a kind detects messages that were lost before they were read, and when it does not."""

    are_seen: bool
    how: str  # a sentence for operators

    @property
    def text(self) -> str:
        return f"{'Gaps are seen' if self.are_seen else 'Gaps cannot be seen'}: {self.how}"


@dataclass(frozen=True, kw_only=True)
class Span:
    """A batch's part of a stream: places from `first` to before `next`, the same number if it has read nothing."""

    stream: str
    first: int
    next: int
    incarnation: str = ""  # a changed value: the stream was created again. Empty: not known
    is_counted: bool = True  # each place between two is a message
    reason: Reason | None = None  # the reason of a gap before it, if the kind knows one that the numbers do not show
    note: Any = None  # JSON, the kind's own, stored with the mark


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Up to where a stream is recorded."""

    next: int
    incarnation: str = ""
    note: Any = None


Marks = Mapping[str, Mark]  # by stream


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Messages of a stream that have no events. `start` and `end` are the first and the last of their places, as text."""

    stream: str
    reason: Reason
    start: str = ""
    end: str = ""
    count: int | None = None  # None: the number is not known
    detail: str = ""  # a text for operators
    open_for: timedelta = timedelta()  # a further one of its stream and reason within this time is the same gap


def compare(marks: Marks, spans: Iterable[Span]) -> tuple[Sequence[Gap], Marks]:
    """The gaps between what is recorded and the spans of a batch, at most one for each stream, and the marks after it."""
    gaps: dict[str, Gap] = {}
    after = dict(marks)
    for span in spans:
        found = _gap(after[span.stream], span) if span.stream in after else None
        if found:
            gaps[span.stream] = _joined(gaps[span.stream], found) if span.stream in gaps else found
        after[span.stream] = Mark(next=span.next, incarnation=span.incarnation, note=span.note)
    return list(gaps.values()), after


def _gap(mark: Mark, span: Span) -> Gap | None:
    is_another = mark.incarnation and span.incarnation and mark.incarnation != span.incarnation
    if not is_another and span.first == mark.next and span.reason is None:
        return None
    start = str(mark.next)
    if is_another:
        return Gap(stream=span.stream, start=start, reason=span.reason or Reason.RECREATED)
    if span.first <= mark.next:
        return Gap(stream=span.stream, start=start, reason=span.reason or Reason.RESTORED)
    count = span.first - mark.next if span.is_counted else None
    end = str(span.first - 1)
    return Gap(stream=span.stream, start=start, end=end, count=count, reason=span.reason or Reason.TRIMMED)


def _joined(first: Gap, second: Gap) -> Gap:
    count = None if first.count is None or second.count is None else first.count + second.count
    return Gap(
        stream=first.stream,
        reason=first.reason if first.reason == second.reason else Reason.UNKNOWN,
        start=first.start,
        end=second.end,
        count=count,
    )


def dump(marks: Marks) -> dict[str, Any]:
    return {
        stream: {"next": mark.next, "incarnation": mark.incarnation, "note": mark.note}
        for stream, mark in marks.items()
    }


def load(stored: Any) -> Marks:
    return {stream: Mark(**mark) for stream, mark in (stored or {}).items()}
