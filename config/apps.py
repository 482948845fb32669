from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """The composition root: wires what lower rooms need from higher ones."""

    name = "config"

    def ready(self) -> None:
        from config import alarms, checks, finished, logins  # noqa: F401
        from runs.alarms import TOPIC as ALARM
        from runs.effects import EMITTED, PACE, SCHEDULE, WAKEUP
        from runs.spawn import CHILD_FINISHED, children_finished
        from runs.wiring import wiring
        from triggers.admission import loop_rate
        from triggers.feedback import record_emitted
        from triggers.heartbeats import set_pace
        from triggers.periodic import TOPIC as PERIODIC_TASK
        from triggers.periodic import send_periodic_task
        from triggers.reading import find_event, read_events
        from triggers.signals import signal
        from triggers.wakeups import check_ahead, set_standing, wake

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
