"""The addresses of this room's resources."""

from rest_framework.routers import SimpleRouter

from runs.api.agents import AgentResource
from runs.api.approvals import ApprovalResource
from runs.api.budgets import BudgetResource
from runs.api.checklists import ChecklistResource
from runs.api.connections import ConnectionResource
from runs.api.incidents import IncidentResource
from runs.api.memory import MemoryResource
from runs.api.notifications import DeliveryResource, NotificationResource
from runs.api.queues import QueueResource
from runs.api.recipients import RecipientGroupResource, RecipientResource
from runs.api.runs import RunResource
from runs.api.sessions import SessionResource

router = SimpleRouter()
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
router.register("connections", ConnectionResource)
router.register("sessions", SessionResource)
router.register("memory", MemoryResource)
