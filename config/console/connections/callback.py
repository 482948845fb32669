"""Where the provider sends a person back to."""

from django.contrib import admin, messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import reverse

from config.console.connections.page import SESSION
from config.console.parts.links import listing, page
from config.console.parts.panel import acting
from runs.connections.consent import end_consent
from runs.exceptions import RunError


def connection_callback(request: HttpRequest) -> HttpResponse:
    """Redirects at once, so that the code stands in no page, no history of the browser and no Referer."""
    if request.method != "GET":
        return HttpResponseNotAllowed(["GET"])
    if not admin.site.has_permission(request):  # by `admin_view` the code would stand in the address of the login
        return redirect_to_login(listing("runs_connection"), reverse("admin:login"))
    said = {name: request.GET.get(name, "")[:5000] for name in ("state", "code", "error")}
    try:
        connection = end_consent(
            **said,
            issuer=request.GET.get("iss", "")[:2000],
            session=request.session.get(SESSION, ""),
            by=acting(request),
        )
    except RunError as refusal:
        messages.error(request, str(refusal))
        return HttpResponseRedirect(listing("runs_connection"))
    messages.success(request, f"Connection {connection.name} is connected.")
    return HttpResponseRedirect(page("runs_connection", connection.pk))
