from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """The composition root: wires what lower rooms need from higher ones."""

    name = "config"

    def ready(self) -> None:
        from config import finished
        from config.health import alarms
        from config.web import logins  # noqa: F401
        from runs.alarms import TOPIC as ALARM
        from runs.attempt.children import CHILD_FINISHED, children_finished
        from runs.attempt.effects import EMITTED, PACE, SCHEDULE, WAKEUP
        from runs.wiring import wiring
        from triggers.dispatch.admission import loop_rate
        from triggers.events import find_event, read_events
        from triggers.schedules.heartbeats import set_pace
        from triggers.schedules.periodic_tasks import TOPIC as PERIODIC_TASK
        from triggers.schedules.periodic_tasks import send_periodic_task
        from triggers.schedules.standing import check_ahead, set_standing
        from triggers.sources.emitted import record_emitted
        from triggers.sources.signal import signal
        from triggers.sources.wakeup import wake

        wiring.read_events = read_events
        wiring.find_event = find_event
        wiring.check_ahead = check_ahead
        wiring.loop_spacing = lambda: loop_rate().spacing
        wiring.signal = signal
        wiring.inside = {
            EMITTED: record_emitted,
            "run.finished": finished.tell,
            CHILD_FINISHED: children_finished,
            WAKEUP: wake,
            SCHEDULE: set_standing,
            PACE: set_pace,
        }
        wiring.outside = {PERIODIC_TASK: send_periodic_task}
        wiring.slow = {ALARM: alarms.send}
        wiring.slow_looks.append(alarms.Watch())
