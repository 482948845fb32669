"""Close windows (debounce, batch) that are over; each becomes one run."""

from collections.abc import Sequence

from django.db import transaction

from runs.db.sql import database_now
from runs.db.trip import one_trip
from runs.failpoints import failpoint
from triggers.dispatch import windows
from triggers.dispatch.admission import close, match_of
from triggers.dispatch.batch import MOST, Batch, lock_keys, open_ledger
from triggers.dispatch.decisions import give_up_on, record, write_decisions
from triggers.dispatch.rules import Rules
from triggers.dispatch_lock import try_lock
from triggers.matching.matches import Group


def windows_over(most: int = MOST, but: Sequence[Group] = ()) -> list[Group]:
    """Groups whose windows are over, except `but`, as many as one transaction may close."""
    return windows.due(database_now(), most, but)


def close_windows(rules: Rules) -> Batch:
    """Turn the windows that are over into runs. Raises its error."""
    over = windows_over()
    return close_these(over, rules) if over else Batch()


def close_these(groups: Sequence[Group], rules: Rules) -> Batch:
    """Close the windows of these groups that are still over. A window whose key is locked elsewhere is left for later."""
    index = rules.current()
    with transaction.atomic():
        if not try_lock():
            return Batch(standby=True)
        if rules.have_changed():
            return Batch(left=len(groups))
        found, at = windows.read(groups), database_now()
        over = [found[group] for group in groups if group in found and found[group].due_at <= at]
        matches = [(window, match_of(window, index.by_id[window.trigger_id])) for window in over]
        locked = lock_keys([match for _, match in matches])
        kept = [(window, match) for window, match in matches if match.key is None or match.key in locked]
        ledger = open_ledger([match for _, match in kept], at)
        for window, match in kept:
            close(window, match, ledger)
        with one_trip() as trip:
            trip.add_all(write_decisions(ledger))
        failpoint("before_window_commit")
    return Batch(dispatched=len(kept), left=len(matches) - len(kept), made=len(kept))


def give_up_window(group: Group, error: Exception) -> Batch:
    """Record the error for every event of the window."""
    with transaction.atomic():
        if not try_lock():
            return Batch(standby=True)
        given_up = list(windows.read([group]).values())
        record(
            [
                give_up_on(window.event_ids, window.trigger_id, window.replay_id, error, window.reports)
                for window in given_up
            ]
        )
        windows.write([], given_up)
    return Batch(dispatched=len(given_up))
