"""Links of notifications as addresses that work from outside."""

from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse

from runs.api.approval_links import approval_link
from runs.models import Approval
from runs.network.site import site
from triggers.overnight.digest import TOPIC as OVERNIGHT

PAGES = {
    "run": "admin:runs_run_change",
    "event": "admin:triggers_event_change",
    "alarm": "admin:runs_alarm_change",
    "incident": "admin:runs_incident_change",
    "approval": "admin:runs_approval_change",
    "approval-page": "admin:runs_approval_change",
}


def absolute(link: str) -> str:
    """`run:<id>`, `event:<id>`, `alarm:<id>`, `incident:<id>`, `approval:<id>` and `overnight:<its end>` become addresses of this site:
    that of an open approval is the signed one, which decides without a login; `approval-page:<id>` is always that of the console. Other
    links stay as they are."""
    kind, _, pk = link.partition(":")
    if kind == OVERNIGHT:
        return site() + overnight_page(pk)
    if kind not in PAGES:
        return link
    if kind == "approval" and (approval := Approval.objects.filter(pk=UUID(pk), decision="").first()):
        return site() + approval_link(approval)
    return site() + reverse(PAGES[kind], args=[pk])


def overnight_page(end: str) -> str:
    """The page of the night that ended then."""
    return f"{reverse('overnight')}?{urlencode({'to': end})}"
