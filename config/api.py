"""The addresses of the API: /api/v1/… and its description at /api/schema/."""

from typing import Any

from django.urls import include, path
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.views import SpectacularAPIView
from rest_framework.routers import SimpleRouter

from runs.api.agents import AgentResource
from runs.api.approvals import ApprovalResource
from runs.api.budgets import BudgetResource
from runs.api.checklists import ChecklistResource
from runs.api.incidents import IncidentResource
from runs.api.memory import MemoryResource
from runs.api.notifications import DeliveryResource, NotificationResource
from runs.api.queues import QueueResource
from runs.api.recipients import RecipientGroupResource, RecipientResource
from runs.api.runs import RunResource
from runs.api.sessions import SessionResource
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
router.register("runs", RunResource)
router.register("approvals", ApprovalResource)
router.register("budgets", BudgetResource)
router.register("checklists", ChecklistResource)
router.register("agents", AgentResource, basename="agent")
router.register("queues", QueueResource, basename="queue")
router.register("incidents", IncidentResource)
router.register("notifications", NotificationResource)
router.register("deliveries", DeliveryResource)
router.register("recipients", RecipientResource)
router.register("recipient-groups", RecipientGroupResource)
router.register("sessions", SessionResource)
router.register("memory", MemoryResource)
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

urlpatterns = [path("v1/", include(router.urls)), path("schema/", SpectacularAPIView.as_view(), name="schema")]


class BearerToken(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Tells drf-spectacular how to write our authentication down."""

    target_class = "triggers.api.authentication.TokenAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
