"""The base of every page of the console: lists and details of one model, at a fixed cost however large its table."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

from django.contrib.admin import ShowFacets
from django.contrib.admin.checks import ModelAdminChecks
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import BinaryField, CharField, JSONField, Model, Q, QuerySet, TextField
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.functional import cached_property
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from unfold.admin import ModelAdmin
from unfold.dataclasses import UnfoldAction
from unfold.decorators import action, display
from unfold.enums import ActionVariant

from config.console.parts.html import shown
from config.console.parts.moments import moment
from config.console.parts.sections import Section
from runs.api.shown import NAMES

Method = TypeVar("Method", bound=Callable[..., Any])
COUNTED = 10_000  # rows; counting millions for each page view would make the console slow
WHOLE = frozenset({"id", "exact"})  # parts of a lookup by a whole value
OFFERED = ("exact", "in", "isnull", "isempty", "gte", "lt")  # lookups of the filters of lists
LOOKED_THROUGH = 100_000  # rows, for filters without an index


def newest(rows: QuerySet[Any], among: Q | None = None) -> QuerySet[Any]:
    """Restrict a filter without an index to the newest LOOKED_THROUGH rows of a time-ordered table, or of those that an index finds."""
    found = rows.model._default_manager.filter(among or Q())
    older = found.order_by("-id").values_list("id", flat=True)[LOOKED_THROUGH:][:1]
    return rows.filter(id__gt=older[0]) if older else rows


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts and pages through the first rows only."""

    template_name = "admin/console/pagination.html"

    @cached_property
    def count(self) -> int:
        rows = cast("QuerySet[Model]", self.object_list)
        # Count keys only: otherwise PostgreSQL computes the list's annotations for every row.
        return min(rows.order_by().values("pk")[: COUNTED + 1].count(), COUNTED)

    @property
    def is_capped(self) -> bool:
        return self.count == COUNTED

    @property
    def shown(self) -> str:
        return f"{self.count:,}{'+' if self.is_capped else ''}"


class KeysetPaginator(Paginator):  # type: ignore[type-arg]
    """Stands for a page that begins after a row, of a list that is neither counted nor numbered."""

    template_name = "admin/console/older.html"


class Panel(ModelAdmin):  # type: ignore[misc]
    """A list that costs a fixed number of queries, and a detail page made of `sections`.

    Django's own forms for adding, changing and deleting are disabled: every change is a named action that calls a service.
    """

    # Unfold's checks look up each button's permission in the database, before `migrate` has put it there.
    checks_class = ModelAdminChecks
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER  # facets would count every choice of every filter
    list_max_show_all = 0
    list_per_page = 50
    list_fullwidth = True
    # Sorting a log by a column without an index reads all of it.
    sortable_by: ClassVar[tuple[str, ...]] = ()
    change_form_template = "admin/console/detail.html"
    fields: ClassVar[tuple[str, ...]] = ()
    form_fields: ClassVar[Collection[str]] = ()  # of the form above the list
    # Routes of further pages, by name; the method of the page "x" is `x_view`.
    own_pages: ClassVar[Mapping[str, str]] = {}

    @property
    def noun(self) -> str:
        """The model in the names of URLs, such as "runs_run"."""
        return f"{self.opts.app_label}_{self.opts.model_name}"

    def get_urls(self) -> list[URLPattern]:
        own = [
            path(route, self.admin_site.admin_view(getattr(self, f"{name}_view")), name=f"{self.noun}_{name}")
            for name, route in self.own_pages.items()
        ]
        return [*own, *super().get_urls()]  # Django's would take their names for the key of a row

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """The whole value of a column, or what a filter of the list offers. Django allows parts of any text, also of those that pages
        redact, joins of other tables, and bytes and JSON, which stand in no address."""
        first, *rest = lookup.split(LOOKUP_SEP)
        is_of_field = first in {field.name for field in self.opts.get_fields()}
        columns = {field.name for field in self.opts.concrete_fields if not isinstance(field, (BinaryField, JSONField))}
        if is_of_field and not self._is_filter(lookup) and not (first in columns and WHOLE.issuperset(rest)):
            return False
        return bool(super().lookup_allowed(lookup, value, request))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return newest(rows) if self._is_looked_through(request) else rows

    def _is_looked_through(self, request: HttpRequest) -> bool:
        """Does the address of the list ask for a column that has no index?"""
        asked = (one for one in request.GET if one not in self.form_fields and not self._is_filter(one))
        columns = {lookup.split(LOOKUP_SEP)[0] for lookup in asked}
        return is_list(request) and not columns.isdisjoint(self._without_index)

    @cached_property
    def _without_index(self) -> set[str]:
        """Of a table whose rows have an order."""
        whole = (one.fields for one in [*self.opts.indexes, *self.opts.total_unique_constraints] if not one.condition)
        first = {fields[0].removeprefix("-") for fields in whole if fields}
        columns = {field.name for field in self.opts.concrete_fields if not (field.unique or field.db_index)}
        return columns - first if "id" in {field.name for field in self.opts.concrete_fields} else set()

    def _is_filter(self, lookup: str) -> bool:
        last = lookup.rpartition(LOOKUP_SEP)[2]
        return any(
            lookup == name or (not is_simple and lookup.startswith(f"{name}{LOOKUP_SEP}") and last in OFFERED)
            for name, is_simple in self._filtered()
        )

    def _filtered(self) -> Iterator[tuple[str, bool]]:
        """What the filters of the list are called in its address, and whether that is the whole of it."""
        for one in self.list_filter:
            found = one[0] if isinstance(one, tuple) else one
            yield (found, False) if isinstance(found, str) else (found.parameter_name, True)

    def sections(self, request: HttpRequest, obj: Any) -> list[Section]:
        raise NotImplementedError

    def title_of(self, obj: Any) -> str:
        return str(obj)

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        """By name, whether a button has an effect in the row's state; a button that is left out has."""
        return {}

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[UnfoldAction]:
        hidden = {
            f"{self.noun}_{name}"
            for name, is_possible in self.possible_buttons(request, object_id).items()
            if not is_possible
        }
        return [one for one in super().get_actions_detail(request, object_id) if one.action_name not in hidden]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Django's address of the form that adds an object; a panel that has one overrides `new`."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return self.new(request)

    def new(self, request: HttpRequest) -> HttpResponse:
        raise NotImplementedError

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # Permission to change an object includes permission to view it.
        app, model = self.opts.app_label, self.opts.model_name
        return any(request.user.has_perm(f"{app}.{verb}_{model}") for verb in ("view", "change"))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"title": capfirst(str(self.opts.verbose_name_plural)), **(extra_context or {})}
        if self._is_looked_through(request):
            context["title"] += f" (of the newest {LOOKED_THROUGH:,})"
        return super().changelist_view(request, context)  # type: ignore[no-any-return]

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Columns that are fields of the rows, too, are shown without secrets."""
        if ORDER_VAR in request.GET and not self.sortable_by:  # Django sorts by any column that an address names
            given = request.GET.copy()
            del given[ORDER_VAR]
            request.GET = given  # type: ignore[assignment]
        listed = super().get_changelist_instance(request)
        fields = {field.name for field in self.opts.concrete_fields if isinstance(field, (CharField, TextField))}
        texts = fields.intersection(listed.list_display) - NAMES
        for row in listed.result_list if texts else ():
            for name in texts:
                setattr(row, name, shown(getattr(row, name)))
        return cast(ChangeList, listed)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, obj: Any = None, **kwargs: Any
    ) -> HttpResponse:
        context |= {"title": self.title_of(obj), "subtitle": "", "sections": self.sections(request, obj)}
        return super().render_change_form(request, context, *args, obj=obj, **kwargs)  # type: ignore[no-any-return]


def column(
    description: str, *, label: Mapping[str, str] | None = None, empty_value: str | None = None
) -> Callable[[Method], Method]:
    """Turn a method into a list column; `label` maps its values to colours."""
    marked = display(description=description, label=label, empty_value=empty_value)

    def column_of(method: Method) -> Any:
        @wraps(method)
        def value(*args: Any) -> Any:
            return shown(method(*args))

        return marked(value)

    return cast(Callable[[Method], Method], column_of)


def time_column(description: str, field: str) -> Callable[..., SafeString]:
    """A list column that shows a time of its row."""

    def shown(self: Panel, row: Any) -> SafeString:
        return moment(getattr(row, field))

    return column(description)(shown)


def allowed(permission: str) -> Callable[..., bool]:
    """A `has_…_permission` method: whether the user has this permission."""

    def has_permission(self: object, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm(permission)

    return has_permission


def button(
    description: str,
    *,
    permissions: Sequence[str],
    icon: str,
    url_path: str | None = None,
    variant: str = "default",
    dialog: Mapping[str, Any] | None = None,
) -> Callable[[Method], Method]:
    """Turn a method into a button of the detail page: with a dialog it acts on the dialog's POST, without one it is a page."""
    marked = action(
        description=description,
        permissions=permissions,
        icon=icon,
        url_path=url_path,
        variant=ActionVariant(variant),
        dialog=dialog,
    )
    return cast(Callable[[Method], Method], marked)


def acting(request: HttpRequest) -> str:
    """The acting account, as the audit log and the services expect it."""
    return f"admin:{request.user.get_username()}"


def is_list(request: HttpRequest) -> bool:
    """Whether the request is for a list page: lists do not read large columns."""
    return bool(request.resolver_match and (request.resolver_match.url_name or "").endswith("_changelist"))
