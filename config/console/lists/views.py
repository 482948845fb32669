"""Saved views: a list with its filters and columns, under a name, for one user or shared with all who may see the list."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_plus, urlencode

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import QueryDict

from agents.kernel.redaction import redacted
from config.models import SavedView
from runs.exceptions import RunError
from runs.models import audit

VIEW = "view"  # the parameter of a list that names the view
SHOWN = 60  # views above a list
# Where a reader is in a list is no part of a view.
LEFT_OUT = frozenset({VIEW, "p", "before", "_changelist_filters"})


class ViewRefused(RunError):
    """A view that cannot be saved, with the reason."""


def views_of(user: Any, page: str) -> QuerySet[SavedView]:
    """Those of the user, with the columns of the list itself, and the shared ones."""
    return SavedView.objects.filter(Q(owner=user.pk) | Q(is_shared=True), page=page).select_related("owner")


def save_view(
    user: Any, page: str, *, name: str, query: str, columns: Sequence[str], is_shared: bool, by: str
) -> SavedView:
    """A new view of the user, or that of this name, changed. Raises ViewRefused."""
    name = name.strip()
    query = filters_in(query)
    if not name or len(name) > SavedView.LONGEST_NAME or not name.isprintable():
        raise ViewRefused(f"A view needs a name of at most {SavedView.LONGEST_NAME} characters on one line.")
    if len(query) > SavedView.LONGEST_QUERY:
        raise ViewRefused(f"The filters are longer than {SavedView.LONGEST_QUERY:,} characters.")
    text = f"{name}\n{unquote_plus(query)}"
    if redacted(text) != text:
        raise ViewRefused("The name or the filters contain a secret. Others see the address of a view.")
    given = {"query": query, "columns": list(columns), "is_shared": is_shared}
    try:
        with transaction.atomic():
            before = SavedView.objects.select_for_update().filter(owner=user.pk, page=page, name=name).first()
            was_shared = before is not None and before.is_shared
            view = before or SavedView(owner_id=user.pk, page=page, name=name, place=_free_place(user, page))
            for field, value in given.items():
                setattr(view, field, value)
            view.save()
            if is_shared or was_shared:
                audit.record(by, "share" if is_shared else "unshare", view, name=name, page=page, filters=query)
    except IntegrityError:
        raise ViewRefused("Another view was saved at the same moment. Save it again.") from None
    return view


def remove_view(view: SavedView, *, by: str) -> None:
    with transaction.atomic():
        if view.is_shared:
            audit.record(by, "delete", view, name=view.name, page=view.page, filters=view.query)
        view.delete()


def choose_columns(user: Any, page: str, columns: Sequence[str]) -> None:
    """The columns that the user sees of a list; none of them: the usual ones."""
    if columns:
        SavedView.objects.update_or_create(owner_id=user.pk, page=page, place=0, defaults={"columns": list(columns)})
    else:
        SavedView.objects.filter(owner=user.pk, page=page, place=0).delete()


def filters_in(query: str) -> str:
    """The query of an address without what is no filter."""
    given = QueryDict(query)
    kept = [(name, value) for name, values in given.lists() if name not in LEFT_OUT for value in values if value]
    return urlencode(sorted(kept))


def _free_place(user: Any, page: str) -> int:
    taken = set(SavedView.objects.filter(owner=user.pk, page=page).values_list("place", flat=True))
    place = next((number for number in range(1, SavedView.MOST + 1) if number not in taken), None)
    if place is None:
        raise ViewRefused(f"You have {SavedView.MOST} views of this list. Delete one first.")
    return place
