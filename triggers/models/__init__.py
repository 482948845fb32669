from .api_token import ApiToken
from .backfill import Backfill, BackfillTick
from .calendar_entry import CalendarEntry
from .decision import Decision
from .event import Event, Redelivery, Redispatch
from .exclusion_calendar import ExclusionCalendar
from .gate import Gate
from .metric import DetectorState, MetricDetector, MetricEpisode, MetricSample, MetricSeries
from .offer import Offer
from .push_channel import PushChannel
from .reading import PoisonMessage, Reading, SourceGap
from .replay import Replay
from .schedule import Schedule
from .schedule_history import Revision, Skip
from .source import DeliveryRate, RefusedDelivery, Secret, Source
from .subscription import EventDelivery, Subscription, SubscriptionSecret
from .switch import Switch, SwitchTimer
from .table import SweptRow, WatchedTable
from .trigger import Trigger
from .watched_file import WatchedFile
from .watched_slot import WatchedSlot
from .window import RateUse, Window

__all__ = [
    "ApiToken", "Backfill", "BackfillTick", "CalendarEntry", "Decision", "DeliveryRate", "DetectorState", "Event", "EventDelivery",
    "ExclusionCalendar", "Gate", "MetricDetector", "MetricEpisode", "MetricSample", "MetricSeries", "Offer", "PoisonMessage",
    "PushChannel", "RateUse", "Reading", "Redelivery", "Redispatch", "RefusedDelivery", "Replay", "Revision", "Schedule", "Secret", "Skip",
    "Source", "SourceGap", "Subscription", "SubscriptionSecret", "SweptRow", "Switch", "SwitchTimer", "Trigger", "WatchedFile",
    "WatchedSlot", "WatchedTable", "Window",
]  # fmt: skip
