from zoneinfo import ZoneInfo

from django.http import HttpRequest

from triggers.exceptions import RuleError
from triggers.schedules.clock import zone_of

COOKIE = "zone"  # set by moments.js, which shows times in that zone


def zone_shown(request: HttpRequest) -> ZoneInfo:
    """The browser's zone from its cookie; the console shows times in it. UTC without the cookie."""
    try:
        return zone_of(request.COOKIES.get(COOKIE, "UTC"))
    except RuleError:
        return ZoneInfo("UTC")
