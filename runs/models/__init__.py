from .agent_stop import AgentStop
from .alarm import Alarm
from .audit import AuditEntry
from .budget import Budget, BudgetWindow, Reservation
from .chat_account import ChatAccount, ChatLinkCode
from .connection import Connection, PendingConsent
from .delivery import Delivery
from .incident import CoveredRun, Incident
from .model_call import ModelCall
from .model_price import ModelPrice
from .notification import Notification
from .outbox import OutboxMessage
from .primary import Primary
from .processed_event import ProcessedEvent
from .queue import Queue
from .recipient import Recipient, RecipientGroup
from .run import NIL, UNPARSED, Attempt, AttemptRow, Run
from .run_log import RunLog
from .step import Step
from .sweep import Sweep
from .wait import Approval, Wait
from .worker import Worker

__all__ = [
    "NIL",
    "UNPARSED",
    "AgentStop",
    "Alarm",
    "Approval",
    "Attempt",
    "AttemptRow",
    "AuditEntry",
    "Budget",
    "BudgetWindow",
    "ChatAccount",
    "ChatLinkCode",
    "Connection",
    "CoveredRun",
    "Delivery",
    "Incident",
    "ModelCall",
    "ModelPrice",
    "Notification",
    "OutboxMessage",
    "PendingConsent",
    "Primary",
    "ProcessedEvent",
    "Queue",
    "Recipient",
    "RecipientGroup",
    "Reservation",
    "Run",
    "RunLog",
    "Step",
    "Sweep",
    "Wait",
    "Worker",
]
