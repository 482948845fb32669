from .backfill import Backfill, BackfillTick
from .decision import Decision
from .event import Event, Redelivery, Redispatch
from .exclusion_calendar import ExclusionCalendar
from .offer import Offer
from .schedule import Revision, Schedule, Skip
from .source import ApiToken, RefusedDelivery, Secret, Source
from .trigger import Trigger
from .window import RateUse, Window

__all__ = [
    "ApiToken",
    "Backfill",
    "BackfillTick",
    "Decision",
    "Event",
    "ExclusionCalendar",
    "Offer",
    "RateUse",
    "Redelivery",
    "Redispatch",
    "RefusedDelivery",
    "Revision",
    "Schedule",
    "Secret",
    "Skip",
    "Source",
    "Trigger",
    "Window",
]
