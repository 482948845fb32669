"""The sentence at the top: how many things need a person, since when, and what is well."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from config.console.home.causes import Cause
from config.console.home.waiting import Waiting
from config.console.parts.html import format_html
from config.console.parts.links import counted, link, listing
from config.console.parts.moments import appointment
from config.console.parts.sections import Cell
from config.health.situation import Situation

WORDS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
NAMED = 3  # causes in the sentence


@dataclass(frozen=True, kw_only=True)
class Verdict:
    text: str
    level: str
    facts: Sequence[Cell]


def verdict(
    now: Situation, causes: Sequence[Cause], waits: Waiting, last_failure: datetime | None, *, are_cut: bool
) -> Verdict:
    """`are_cut`: there may be more causes than these."""
    bad = [one for one in causes if one.is_bad]
    muted = sum(one.is_muted for one in causes)
    needed, watched = len(bad) + waits.decisions, len(causes) - len(bad) - muted
    if needed:
        number = WORDS[needed] if needed < len(WORDS) else f"{needed:,}"
        number = f"At least {number.lower()}" if are_cut or waits.is_cut else number
        things = f"{number} thing{' needs' if needed == 1 else 's need'} you."
        text = f"{things} {'Look at ' + _more(watched) + ', too.' if watched else 'Everything else keeps up.'}"
    elif watched:
        text = f"Nothing needs you now. Look at {_more(watched)} when you have time."
    else:
        text = "All is well."
    facts = [*map(_since, bad[:NAMED]), *_decisions(waits), *_muted(muted), *_well(now)]
    if not causes:
        facts.append(format_html("the last run failed {}", appointment(last_failure)) if last_failure else "no run has failed")  # fmt: skip
    return Verdict(text=text, level="bad" if bad else "warning" if needed or watched else "good", facts=facts)


def _more(watched: int) -> str:
    return f"{WORDS[watched].lower() if watched < len(WORDS) else watched} more thing{'' if watched == 1 else 's'}"


def _since(cause: Cause) -> Cell:
    said = link(f"#{cause.id}", cause.said)
    return format_html("{} since {}", said, appointment(cause.since)) if cause.since else said


def _decisions(waits: Waiting) -> list[Cell]:
    facts: list[Cell] = []
    if waits.approvals_count:
        count = waits.approvals_count
        words = f"{waits.approvals_shown} approval{' waits' if count == 1 else 's wait'}"
        until = min((one.until for one in waits.approvals if one.until), default=None)
        asked = counted(listing("runs_approval"), count, words)
        facts.append(format_html("{}, until {}", asked, appointment(until)) if until else asked)
    if waits.uncertain_count:
        words = f"{waits.uncertain_shown} uncertain run{'' if waits.uncertain_count == 1 else 's'}"
        facts.append(counted(listing("runs_run", status__exact="uncertain"), waits.uncertain_count, words))
    return facts


def _muted(count: int) -> list[Cell]:
    words = f"{count:,} muted cause{'' if count == 1 else 's'}"
    return [counted(listing("runs_incident", status="muted"), count, words)] if count else []


def _well(now: Situation) -> list[Cell]:
    """What is as it should be, as far as no problem contradicts it."""
    alive = sum(process.alive for process in now.processes)
    is_every_one = all(process.alive or process.stopped is not None for process in now.processes)
    words = f"{'all ' if is_every_one else ''}{alive} processes alive"
    well: list[Cell] = [counted(listing("runs_worker", state="alive"), alive, words)]
    if not now.undispatched and not now.schedules_late and not any(queue.ready for queue in now.queues):
        well.append("nothing late")
    return well
