"""Decide whether an event that matched a trigger becomes a run now, later, or not at all, with a reason: overlap policies, rates,
windows. `runs.transitions.stop` cancels the live run for `cancel_previous`.

The dispatcher calls this while it holds the advisory locks of the concurrency keys. Only the dispatcher reads and writes
rates and windows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.conf import settings

from agents.kernel.ids import run_id
from runs.enqueue import NewRun, UnstartedRun
from runs.keys import KeyState
from triggers.dispatch.rates import Use
from triggers.dispatch.windows import OpenWindow
from triggers.django_tasks.names import AGENT as DJANGO_TASK
from triggers.django_tasks.terms import terms_of
from triggers.matching.flow_control import Rate
from triggers.matching.index import Rule
from triggers.matching.matches import Group, Match, Refusal, hold_or_stop, refuse
from triggers.models import Decision, Trigger

Outcome = Decision.Outcome
Overlap = Trigger.Overlap


@dataclass(kw_only=True)
class Ledger:
    """The data for admission, read under the locks, and its decisions so far. Updated with each decision."""

    now: datetime
    keys: Mapping[str, KeyState] = field(default_factory=dict)
    unstarted: dict[tuple[str, UUID], UnstartedRun] = field(default_factory=dict)
    uses: dict[str, Use] = field(default_factory=dict)
    windows: dict[Group, OpenWindow] = field(default_factory=dict)

    new: list[NewRun] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    closed: list[tuple[OpenWindow, UUID | None]] = field(default_factory=list)  # each with its run
    newest: dict[tuple[str, UUID], NewRun] = field(default_factory=dict)  # of `new`, by (key, replay id)
    replacing: dict[str, UUID] = field(default_factory=dict)  # key → the run that replaces all others of the key


def admit(matches: Iterable[Match], ledger: Ledger) -> None:
    """Decide on the matches, in this order."""
    for match in matches:
        if refusal := _slow_down(match, ledger):
            ledger.refused.append(refusal)
        elif match.rule.intake.has_window:
            _collect(match, ledger)
        else:
            _admit(match, ledger)


def close(window: OpenWindow, match: Match, ledger: Ledger) -> None:
    """Turn a window into a run. Its trigger may have changed since the window was opened."""
    ledger.windows.pop(window.group, None)
    run_id = None
    if refusal := hold_or_stop(match):
        ledger.refused.append(refusal)
    else:
        run_id = _admit(match, ledger)
    ledger.closed.append((window, run_id))


def loop_rate() -> Rate:
    """The maximum rate of any loop of triggers."""
    return Rate.parse(settings.WAKEFUL_LOOP_RATE)


def _slow_down(match: Match, ledger: Ledger) -> Refusal | None:
    """Count a match that closes a loop; refuse it if the loop is over its rate."""
    if match.loop is None:
        return None
    rate, use = loop_rate(), ledger.uses[match.loop]
    until = use.next_start(rate, ledger.now)
    if until > ledger.now:
        said = f"{match.led_here} is a loop, and {match.chain[-1]} has woken {match.rule.slug} {rate.words} in it"
        return refuse(match, Outcome.LOOP, f"{said}: no more (WAKEFUL_LOOP_RATE) until {until:%Y-%m-%d %H:%M:%S} UTC")
    use.take(ledger.now, rate)
    return None


def _collect(match: Match, ledger: Ledger) -> None:
    rule, [event_id] = match.rule, match.event_ids
    window = ledger.windows.get(match.window)
    if window and window.is_over(rule.intake, ledger.now):
        close(window, match_of(window, rule), ledger)
        window = None
    if window is None:
        window = ledger.windows[match.window] = OpenWindow(
            id=None, trigger_id=rule.id, key=match.group, replay_id=match.replay_id, event_ids=[], root_id=match.root_id,
            depth=match.depth, chain=match.chain, is_tainted=match.is_tainted, input=None, opened_at=ledger.now, due_at=ledger.now,
        )  # fmt: skip
    window.take(
        event_id, match.input, match.depth, match.chain, match.is_tainted, match.reports, rule.intake, ledger.now
    )
    ledger.refused.append(
        refuse(match, Outcome.COLLECTED, f"until {window.closes_at:%Y-%m-%d %H:%M:%S} UTC at the latest")
    )
    if window.is_over(rule.intake, ledger.now):
        close(window, match_of(window, rule), ledger)


def match_of(window: OpenWindow, rule: Rule) -> Match:
    return Match(
        rule=rule,
        event_ids=window.event_ids,
        root_id=window.root_id,
        depth=window.depth,
        chain=window.chain,
        replay_id=window.replay_id,
        group=window.key,
        key=window.key if rule.has_key else None,
        input=window.input,
        is_tainted=window.is_tainted,
        reports=window.reports,
    )


def _admit(match: Match, ledger: Ledger) -> UUID | None:
    """Returns the new run's id; None: no run."""
    rule, id = match.rule, run_id(match.rule.id, match.event_ids[0], match.replay_id)
    state = ledger.keys[match.key] if match.key is not None else None
    if state and rule.overlap == Overlap.SKIP and state.live >= rule.key_limit:
        ledger.refused.append(refuse(match, Outcome.OVERLAP, "a run of its key was live", state.first))
        return None
    if match.key is not None and rule.overlap == Overlap.QUEUE_ONE and (taker := _taker(match.key, match, ledger)):
        taker.take_along(
            match.event_ids,
            match.input,
            match.input is not None,
            match.depth,
            match.chain,
            match.is_tainted,
            match.reports,
        )
        ledger.refused.append(refuse(match, Outcome.JOINED, "joined a run that had not started", taker.id))
        return None

    policy, start_at = rule.policy, None
    if rule.agent == DJANGO_TASK:
        policy, start_at = terms_of(policy, match.input, ledger.now)
    if rule.intake.rate:
        use = ledger.uses[match.group]
        start = use.next_start(rule.intake.rate, ledger.now)
        if start > ledger.now and rule.intake.overflow == "drop":
            ledger.refused.append(refuse(match, Outcome.RATE, f"over its rate until {start:%Y-%m-%d %H:%M:%S} UTC"))
            return None
        use.take(start, rule.intake.rate)
        if start > ledger.now:
            start_at = max(start, start_at or start)

    run = NewRun(
        id=id,
        agent=rule.agent,
        trigger=rule.slug,
        trigger_id=rule.id,
        event_ids=list(match.event_ids),
        policy=policy.reporting(match.reports),
        root_id=match.root_id,
        replay_id=match.replay_id,
        depth=match.depth,
        chain=match.chain,
        input=match.input,
        has_input=match.input is not None,
        key=match.key,
        key_limit=rule.key_limit,
        start_at=start_at,
        is_tainted=match.is_tainted,
    )
    ledger.new.append(run)
    if match.key is not None and state is not None:
        _take_place(run, match.key, state, rule, ledger)
    return run.id


def _take_place(run: NewRun, key: str, state: KeyState, rule: Rule, ledger: Ledger) -> None:
    if rule.overlap == Overlap.CANCEL_PREVIOUS:
        ledger.replacing[key] = run.id
    elif run.start_at is None:
        run.slot = state.place(rule.key_limit)
    if run.slot is not None:
        state.slots.add(run.slot)
    else:
        state.queued += 1
        state.blocked += run.start_at is None
    state.first = state.first or run.id
    ledger.newest[key, run.replay_id] = run


def _taker(key: str, match: Match, ledger: Ledger) -> NewRun | UnstartedRun | None:
    """The run of the key that has not started and has room for the match's events."""
    taker = ledger.newest.get((key, match.replay_id)) or ledger.unstarted.get((key, match.replay_id))
    return taker if taker and taker.room >= len(match.event_ids) else None
