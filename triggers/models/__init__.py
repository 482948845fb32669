from .decision import Decision
from .event import Event, Redelivery, Redispatch
from .schedule import Schedule
from .source import ApiToken, Secret, Source
from .trigger import Trigger
from .window import RateUse, Window

__all__ = [
    "ApiToken",
    "Decision",
    "Event",
    "RateUse",
    "Redelivery",
    "Redispatch",
    "Schedule",
    "Secret",
    "Source",
    "Trigger",
    "Window",
]
