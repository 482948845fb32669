"""Lists with columns to choose and with saved views above them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from django.contrib.admin.views.main import ChangeList
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.http import HttpRequest
from django.urls import reverse

from config.console.lists.views import SHOWN, VIEW, filters_in, views_of
from config.console.parts.links import listing
from config.console.parts.panel import Panel
from config.models import SavedView

SHARE = "config.share_savedview"


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    label: str
    is_shown: bool


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """What stands above a list: its views, and the columns that can be chosen."""

    all_url: str
    views: Sequence[tuple[SavedView, str, bool]]  # the view, its address, whether it is someone else's
    shown: SavedView | None
    is_changed: bool  # the filters are no longer those of the shown view
    columns: Sequence[Column]
    query: str
    columns_url: str
    save_url: str
    remove_url: str
    may_share: bool


class ArrangedPanel(Panel):
    """`list_display` are the usual columns. `first_columns` are always there."""

    first_columns: ClassVar[tuple[str, ...]]
    more_columns: ClassVar[tuple[str, ...]]
    list_before_template = "admin/console/list_head.html"

    @property
    def possible_columns(self) -> tuple[str, ...]:
        usual = tuple(name for name in self.list_display if name not in self.first_columns)
        return (*usual, *self.more_columns)

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        chosen = self._columns(request)
        if not chosen:
            return tuple(self.list_display)
        return (*self.first_columns, *(name for name in self.possible_columns if name in chosen))

    def shows_column(self, request: HttpRequest, name: str) -> bool:
        return name in self.get_list_display(request)

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        listed: Any = super().get_changelist_instance(request)
        listed.arrangement = self._arrangement(request)
        return cast(ChangeList, listed)

    def _arrangement(self, request: HttpRequest) -> Arrangement:
        shown, query, columns = self._view(request), request.GET.urlencode(), self.get_list_display(request)
        views = [(one, _address(one), one.owner_id != request.user.pk) for one in self._views(request) if one.name]
        may_share = request.user.has_perm(SHARE)
        is_removable = shown is not None and (shown.owner_id == request.user.pk or (shown.is_shared and may_share))
        return Arrangement(
            all_url=listing(self.noun),
            views=views,
            shown=shown,
            is_changed=shown is not None and filters_in(query) != shown.query,
            columns=[
                Column(name=name, label=self._label(name), is_shown=name in columns) for name in self.possible_columns
            ],
            query=query,
            columns_url=reverse("list_columns", args=[self.noun]),
            save_url=reverse("list_views", args=[self.noun]),
            remove_url=reverse("list_view_remove", args=[shown.pk]) if shown and is_removable else "",
            may_share=may_share,
        )

    def _label(self, name: str) -> str:
        label = getattr(getattr(self, name, None), "short_description", None)
        return str(label or self.opts.get_field(name).verbose_name)

    def _columns(self, request: HttpRequest) -> Sequence[str]:
        view = self._view(request)
        own = next((one for one in self._views(request) if not one.name), None)
        return next((one.columns for one in (view, own) if one and one.columns), ())

    def _view(self, request: HttpRequest) -> SavedView | None:
        asked = request.GET.get(VIEW, "")
        return next((one for one in self._views(request) if one.name and str(one.pk) == asked), None)

    def _views(self, request: HttpRequest) -> list[SavedView]:
        """Read once: several parts of a page ask for them."""
        kept: dict[str, list[SavedView]] = request.__dict__.setdefault("_saved_views", {})
        if self.noun not in kept:
            # Those of others leave out none of the user's own.
            own_first = ExpressionWrapper(Q(owner=request.user.pk), output_field=BooleanField()).desc()
            found = views_of(request.user, self.noun).order_by(own_first, "name", "pk")[:SHOWN]
            kept[self.noun] = sorted(found, key=lambda view: (view.name, view.pk))
        return kept[self.noun]


def without_view(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a list that filter it."""
    return {name: value for name, value in parameters.items() if name != VIEW}


def _address(view: SavedView) -> str:
    query = f"{view.query}&" if view.query else ""
    return f"{listing(view.page)}?{query}{VIEW}={view.pk}"
