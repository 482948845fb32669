"""Links of notifications as addresses that work from outside."""

from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from runs.api.approval_links import approval_link
from runs.models import Approval
from triggers.overnight.digest import TOPIC as OVERNIGHT

PAGES = {
    "run": "admin:runs_run_change",
    "alarm": "admin:runs_alarm_change",
    "incident": "admin:runs_incident_change",
    "approval": "admin:runs_approval_change",
}
LOCAL = {"127.0.0.1", "localhost", "[::1]", "testserver", "*"}


def absolute(link: str) -> str:
    """`run:<id>`, `alarm:<id>`, `incident:<id>`, `approval:<id>` and `overnight:<its end>` become addresses of this site: that of an
    open approval is the signed one, which decides without a login. Other links stay as they are."""
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


def site() -> str:
    """The address of this site, without a slash at the end: WAKEFUL_URL, or what the other settings say of it."""
    if settings.WAKEFUL_URL:
        return str(settings.WAKEFUL_URL).rstrip("/")
    public = [host for host in settings.ALLOWED_HOSTS if host not in LOCAL and not host.startswith(".")]
    if public:
        return f"{'https' if settings.WAKEFUL_HTTPS else 'http'}://{public[0]}"
    return f"http://127.0.0.1:{settings.WAKEFUL_PORT}"
