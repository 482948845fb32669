"""Push channels of Google Calendar: a hint that makes the poller look now. It is polled at its interval as well, so a lost hint costs
nothing but time. The poller makes a channel, and another one before it ends; what Google sends has no data.

The channel of a source that is disabled or deleted is stopped by the process that reads it. If there is none, or Google does not answer,
the channel ends by itself: each lives for a day, and what it sends meanwhile is 404."""

import hmac
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import structlog
from django.db.models.functions import Now
from django.urls import reverse

from runs.db.sql import execute
from runs.network.site import LOCAL, site
from triggers.models import PushChannel
from triggers.sources.calendars.entry import instant, short
from triggers.sources.polling.by_connection import Account
from triggers.sources.runner import SourceError

log = structlog.get_logger(__name__)

LASTS, RENEWED = timedelta(days=1), timedelta(hours=2)  # a channel, and so long before its end it is renewed
AGAIN = timedelta(hours=1)  # after Google has refused one
SYNC = "sync"  # the state of a channel's first message
LONGEST_TOKEN = 256  # characters
# Each of them counts: the poll that followed the last one may have begun before this change.
HINT = "UPDATE triggers_pushchannel SET hinted_at = clock_timestamp() WHERE id = %s::uuid"


def hint(id: str, token: str, state: str) -> bool:
    """Note that the calendar of this channel has something new. False: there is no such channel with this token, it has ended, or it is
    of a disabled source."""
    try:
        channel = UUID(id)
    except ValueError:
        return False
    rows = PushChannel.objects.filter(id=channel, source__enabled=True, ends_at__gt=Now())
    digest = rows.values_list("digest", flat=True).first()
    if digest is None or not 0 < len(token) <= LONGEST_TOKEN or not hmac.compare_digest(digest, _digest(token)):
        return False
    if state != SYNC:
        execute(HINT, [str(channel)])
    return True


def address() -> str:
    """Where Google can reach this installation; empty if it has no public address with TLS."""
    base = site()
    host = urlsplit(base).hostname or ""
    with suppress(ValueError):
        if not ip_address(host).is_global:
            return ""
    is_public = base.startswith("https://") and "." in host and host not in LOCAL
    return base + reverse("calendar_push") if is_public else ""


def watched(
    account: Account, api: str, calendar: str, state: Mapping[str, Any], source_id: UUID
) -> tuple[Mapping[str, Any], Callable[[], None] | None]:
    """The state of the calendar's channel after this poll, and what writes a new channel. `calendar` is its address below `api`."""
    now, wanted = datetime.now(UTC), address()
    if not wanted:
        return {}, None
    # Of an edited source the row is gone, and its channel may be stopped.
    is_there = "id" not in state or PushChannel.objects.filter(id=state["id"]).exists()
    # A time further ahead is of a clock that was wrong.
    if is_there and state.get("address") == wanted and timedelta() < instant(state["until"]) - now <= LASTS:
        return state, None
    id, token = uuid4(), token_urlsafe(32)
    asked = {
        "id": str(id),
        "type": "web_hook",
        "address": wanted,
        "token": token,
        "params": {"ttl": str(int(LASTS.total_seconds()))},
    }
    try:
        made = _post(account, f"{calendar}/events/watch", asked)
        ends_at = datetime.fromtimestamp(int(made["expiration"]) / 1000, UTC)
        resource = short(made["resourceId"])
    except (SourceError, ValueError, TypeError, LookupError, OverflowError, OSError) as error:
        log.warning("calendar.push_refused", source_id=str(source_id), error=str(error)[:300])
        return {"address": wanted, "until": (now + AGAIN).isoformat()}, None
    stop(account, api, state)
    until = max(min(ends_at, now + LASTS) - RENEWED, now + AGAIN)

    def keep() -> None:
        columns = {"id": id, "digest": _digest(token), "ends_at": ends_at, "hinted_at": None}
        PushChannel.objects.update_or_create(source_id=source_id, defaults=columns)

    return {"address": wanted, "until": until.isoformat(), "id": str(id), "resource": resource}, keep


def stop(account: Account, api: str, state: Mapping[str, Any]) -> None:
    """Stop the channel of this state, if it has one."""
    if "id" in state:
        with suppress(SourceError):  # it ends by itself
            _post(account, f"{api}/channels/stop", {"id": state["id"], "resourceId": state["resource"]})


def _post(account: Account, url: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    headers = {"Content-Type": "application/json"}
    _, found = account.json(url, method="POST", content=json.dumps(content).encode(), headers=headers, allowed=(204,))
    return found


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
