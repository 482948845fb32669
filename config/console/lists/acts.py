"""The buttons above a list: choose its columns, save a view of it, remove one."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from config.console.lists.panel import SHARE, ArrangedPanel
from config.console.lists.views import VIEW, ViewRefused, choose_columns, filters_in, remove_view, save_view, views_of
from config.console.parts.links import listing
from config.console.parts.panel import acting
from config.models import SavedView


@require_POST
def choose_columns_of(request: HttpRequest, noun: str) -> HttpResponse:
    panel = _panel(request, noun)
    chosen = [name for name in panel.possible_columns if name in request.POST.getlist("column")]
    choose_columns(request.user, noun, [] if "usual" in request.POST else chosen)
    return _back(noun, request.POST.get("query", ""))


@require_POST
def save_view_of(request: HttpRequest, noun: str) -> HttpResponse:
    panel, query = _panel(request, noun), request.POST.get("query", "")
    is_shared = "shared" in request.POST
    if is_shared and not request.user.has_perm(SHARE):
        raise PermissionDenied
    columns = [name for name in panel.possible_columns if name in request.POST.getlist("column")]
    try:
        view = save_view(
            request.user,
            noun,
            name=request.POST.get("name", ""),
            query=query,
            columns=columns,
            is_shared=is_shared,
            by=acting(request),
        )
    except ViewRefused as refusal:
        messages.error(request, str(refusal))
        return _back(noun, query)
    messages.success(request, f"View “{view.name}” is saved.")
    return _back(noun, view.query, view)


@require_POST
def remove_view_of(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(SavedView, pk=pk)
    _panel(request, found.page)
    view = get_object_or_404(views_of(request.user, found.page).exclude(name=""), pk=pk)
    if view.owner_id != request.user.pk and not request.user.has_perm(SHARE):
        raise PermissionDenied
    remove_view(view, by=acting(request))
    messages.success(request, f"View “{view.name}” is deleted.")
    return _back(view.page, "")


def _panel(request: HttpRequest, noun: str) -> ArrangedPanel:
    """The panel of a list that the user may see."""
    every: list[Any] = [panel for panel in admin.site._registry.values() if isinstance(panel, ArrangedPanel)]
    panel: ArrangedPanel | None = next((one for one in every if one.noun == noun), None)
    if panel is None:
        raise Http404("There is no such list.")
    if not panel.has_view_permission(request):
        raise PermissionDenied
    return panel


def _back(noun: str, query: str, view: SavedView | None = None) -> HttpResponse:
    """To the list with its filters, and nowhere else."""
    kept = "&".join(part for part in (filters_in(query), f"{VIEW}={view.pk}" if view else "") if part)
    return redirect(f"{listing(noun)}?{kept}" if kept else listing(noun))
