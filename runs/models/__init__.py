from .alarm import Alarm
from .audit import AuditEntry
from .notification import Notification
from .outbox import OutboxMessage
from .processed_event import ProcessedEvent
from .queue import Queue
from .run import NIL, Attempt, Run
from .sweep import Sweep
from .worker import Worker

__all__ = [
    "NIL",
    "Alarm",
    "Attempt",
    "AuditEntry",
    "Notification",
    "OutboxMessage",
    "ProcessedEvent",
    "Queue",
    "Run",
    "Sweep",
    "Worker",
]
