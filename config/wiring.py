"""Connect what lower rooms need from higher ones (`runs.ports`)."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from agents.kernel import installation, redaction
from config import facts
from config.health import watch as health
from config.links import absolute
from config.secrets import know_secrets, secrets_of_environment
from runs.attempt.children import CHILD_FINISHED, children_finished, stop_orphans
from runs.attempt.effects import EMITTED, PACE, SCHEDULE, WAKEUP
from runs.incidents.items import LOOKED_AT, items_looked_at
from runs.notifications.alarms import TOPIC as ALARM
from runs.notifications.recipients import plain_addresses
from runs.ports import ports
from triggers.accept import taint_changes
from triggers.dispatch import gates
from triggers.dispatch.admission import loop_rate
from triggers.dispatch.run_failures import count_failures
from triggers.events.read import find_event, from_strangers, read_events
from triggers.schedules.agent_schedules import check_ahead, set_standing
from triggers.schedules.heartbeats import set_pace
from triggers.schedules.periodic_tasks import TOPIC as PERIODIC_TASK
from triggers.schedules.periodic_tasks import send_periodic_task
from triggers.schedules.terms.active_time import active_time
from triggers.sources.databases import watch as slots
from triggers.sources.emitted_events import record_emitted
from triggers.sources.secrets import plain_secrets
from triggers.sources.signal import signal
from triggers.sources.wakeup import wake


def connect() -> None:
    ports.read_events = read_events
    ports.from_strangers = from_strangers
    ports.find_event = find_event
    ports.check_ahead = check_ahead
    ports.loop_spacing = lambda: loop_rate().spacing
    ports.taint_changes = taint_changes
    ports.active_time = active_time
    ports.signal = signal
    ports.gates = gates
    ports.absolute = absolute
    ports.inside = {
        EMITTED: record_emitted,
        "run.finished": runs_finished,
        CHILD_FINISHED: children_finished,
        WAKEUP: wake,
        SCHEDULE: set_standing,
        PACE: set_pace,
        LOOKED_AT: items_looked_at,
    }
    ports.outside = {PERIODIC_TASK: send_periodic_task}
    ports.slow = {ALARM: health.send}
    ports.couriers += [health.Watch, slots.Watcher]
    know_secrets()
    installation.connect(facts)
    redaction.look_up = lambda: chain(secrets_of_environment(), plain_secrets(), plain_addresses())


def runs_finished(payloads: Sequence[dict[str, Any]]) -> None:
    """Tell the triggers and the children of runs that these have finished."""
    count_failures(payloads)
    stop_orphans(payloads)
