"""The entry of a journal that a wait becomes."""

from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from agents.journal.entries import NewWait
from agents.journal.protocol import (
    ApprovalRequest,
    BudgetRequest,
    ChildrenRequest,
    EventRequest,
    ModelRequest,
    SessionRequest,
    TimeRequest,
)
from runs.budgets.wake import asked_of
from runs.models import Approval, Wait
from runs.transitions.entries import ApprovalEntry, CallEntry, WaitEntry


def entry_of(wait: NewWait) -> WaitEntry:
    place: dict[str, Any] = {"key": wait.key, "position": wait.position, "is_keyed": wait.is_keyed}
    match wait.request:
        case TimeRequest() as request:
            return WaitEntry(kind=Wait.Kind.TIME, duration=request.duration, until=request.until, **place)
        case EventRequest() as request:
            return WaitEntry(
                kind=Wait.Kind.EVENT,
                duration=request.timeout,
                event_type=request.type,
                event_source=request.source,
                match=request.match,
                **place,
            )
        case ApprovalRequest() as request:
            approval = ApprovalEntry(
                id=UUID(int=uuid7().int),
                question=request.question,
                detail=request.detail,
                arguments=request.arguments,
                on_expiry=Approval.OnExpiry(request.on_expiry),
            )
            return WaitEntry(kind=Wait.Kind.APPROVAL, duration=request.expires, approval=approval, **place)
        case ChildrenRequest() as request:
            return WaitEntry(kind=Wait.Kind.CHILDREN, duration=request.timeout, children=request.children, **place)
        case BudgetRequest() as request:
            return WaitEntry(kind=Wait.Kind.BUDGET, until=request.until, asked=asked_of(request), **place)
        case SessionRequest() as request:
            asked = {"session": request.session, "reason": request.reason}
            return WaitEntry(kind=Wait.Kind.SESSION, duration=request.timeout, asked=asked, **place)
        case ModelRequest() as request:
            call = CallEntry(step=request.step, content=request.content)
            return WaitEntry(kind=Wait.Kind.MODEL, asked={"reason": request.reason}, call=call, **place)
