"""The zone in which the console shows times: that of the browser."""

from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.utils import html
from django.utils.safestring import SafeString

from triggers.exceptions import RuleError
from triggers.schedules.clock import zone_of

COOKIE = "zone"  # set by moments.js, which shows times in that zone


def zone_shown(request: HttpRequest) -> ZoneInfo:
    """The browser's zone from its cookie; the console shows times in it. UTC without the cookie."""
    try:
        return zone_of(request.COOKIES.get(COOKIE, "UTC"))
    except RuleError:
        return ZoneInfo("UTC")


def times_in(request: HttpRequest) -> SafeString:
    """The zone of times in the header. The first page is rendered before there is a cookie: moments.js corrects it."""
    return html.format_html('Times in <span data-zone-shown="">{}</span>', zone_shown(request).key)
