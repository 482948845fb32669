"""/push/calendars/: the HTTP of the push channels of Google Calendar."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from triggers.sources.calendars.push import hint


@csrf_exempt
@require_POST
def calendar_push(request: HttpRequest) -> HttpResponse:
    """Everything is in headers; the body is not read. What is not of a channel is answered like an address that does not exist."""
    headers = request.headers
    names = ("X-Goog-Channel-ID", "X-Goog-Channel-Token", "X-Goog-Resource-State")
    is_known = hint(*(headers.get(name, "") for name in names))
    return HttpResponse(status=200 if is_known else 404)
