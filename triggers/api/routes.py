"""The addresses of this room's resources."""

from rest_framework.routers import SimpleRouter

from triggers.api.backfills import BackfillResource
from triggers.api.calendars import CalendarResource
from triggers.api.events import EventResource
from triggers.api.overnight import OvernightResource
from triggers.api.prompt_agents import PromptAgentResource
from triggers.api.reminders import ReminderResource
from triggers.api.replays import ReplayResource
from triggers.api.schedules import ScheduleResource
from triggers.api.sources import SourceResource
from triggers.api.subscriptions import EventDeliveryResource, SubscriptionResource
from triggers.api.triggers import TriggerResource
from triggers.api.upcoming import UpcomingResource

router = SimpleRouter()
router.register("events", EventResource)
router.register("prompt-agents", PromptAgentResource)
router.register("triggers", TriggerResource)
router.register("schedules", ScheduleResource)
router.register("backfills", BackfillResource)
router.register("replays", ReplayResource)
router.register("calendars", CalendarResource)
router.register("reminders", ReminderResource, basename="reminder")
router.register("upcoming", UpcomingResource, basename="upcoming")
router.register("overnight", OvernightResource, basename="overnight")
router.register("sources", SourceResource)
router.register("subscriptions", SubscriptionResource)
router.register("event-deliveries", EventDeliveryResource)
