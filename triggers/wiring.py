"""Connect what runs need from triggers (`runs.ports`)."""

from collections.abc import Sequence
from typing import Any

from runs.attempt.children import CHILD_FINISHED, children_finished, stop_orphans
from runs.attempt.effects import EMITTED, PACE, SCHEDULE, WAKEUP
from runs.incidents.items import LOOKED_AT, items_looked_at
from runs.notifications.replies import REPLY, enter_replies
from runs.ports import ports
from runs.queues import courier
from runs.transitions.reports import REPORT
from triggers.accept import taint_changes
from triggers.dispatch import gates
from triggers.dispatch.admission import loop_rate
from triggers.dispatch.run_failures import count_failures
from triggers.events.read import find_event, from_strangers, read_ahead, read_events, search_of
from triggers.reports.deliver import deliver_reports
from triggers.schedules.agent_schedules import check_ahead, set_standing
from triggers.schedules.heartbeats import set_pace
from triggers.schedules.periodic_tasks import TOPIC as PERIODIC_TASK
from triggers.schedules.periodic_tasks import send_periodic_task
from triggers.schedules.terms.active_time import active_time
from triggers.schedules.terms.deadlines import Deadlines
from triggers.sources.calendars import TOPIC as CALENDAR
from triggers.sources.connected import sources_of_connection
from triggers.sources.databases.watch import Watcher
from triggers.sources.emitted_events import record_emitted
from triggers.sources.reply_place import reply_place, request_place
from triggers.sources.secrets import secret_of
from triggers.sources.signal import signal
from triggers.sources.wakeup import wake


def connect() -> None:
    ports.read_events = read_events
    ports.read_ahead = read_ahead
    ports.from_strangers = from_strangers
    ports.reply_place = reply_place
    ports.request_place = request_place
    ports.secret_of = secret_of
    ports.find_event = find_event
    ports.search_of = search_of
    ports.check_ahead = check_ahead
    ports.loop_spacing = lambda: loop_rate().spacing
    ports.taint_changes = taint_changes
    ports.active_time = active_time
    ports.deadlines = Deadlines.parse
    ports.signal = signal
    ports.gates = gates
    ports.sources_of_connection = sources_of_connection
    ports.inside = {
        EMITTED: record_emitted,
        "run.finished": runs_finished,
        REPORT: deliver_reports,
        CHILD_FINISHED: children_finished,
        WAKEUP: wake,
        CALENDAR: calendars_start,
        SCHEDULE: set_standing,
        PACE: set_pace,
        LOOKED_AT: items_looked_at,
        REPLY: enter_replies,
    }
    ports.outside[PERIODIC_TASK] = send_periodic_task
    courier.further.append(Watcher)


def calendars_start(payloads: Sequence[dict[str, Any]]) -> None:
    # Imported here: only a dispatcher needs it, and only where a calendar is polled.
    from triggers.sources.calendars.starts import begin

    begin(payloads)


def runs_finished(payloads: Sequence[dict[str, Any]]) -> None:
    """Tell the triggers and the children of runs that these have finished."""
    count_failures(payloads)
    stop_orphans(payloads)
