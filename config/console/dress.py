"""The team's own ModelAdmins look like the console, and their changes are in the audit log like those of Django's own forms."""

from typing import Any

from django.contrib.admin import AdminSite, StackedInline, TabularInline
from unfold.admin import ModelAdmin
from unfold.admin import StackedInline as OurStackedInline
from unfold.admin import TabularInline as OurTabularInline

from config.console.parts.audit_entries import Audited


def dress(site: AdminSite) -> None:
    """A ModelAdmin that is made for another look gets the base class of the console's behind its own."""
    for model, panel in list(site._registry.items()):
        if not isinstance(panel, ModelAdmin):
            kind = _with(type(panel), Audited, ModelAdmin)
            kind.inlines = [_inline(one) for one in panel.inlines]
            site._registry[model] = kind(model, site)


def _inline(kind: Any) -> Any:
    if issubclass(kind, (OurStackedInline, OurTabularInline)):
        return kind
    ours = next((one for of, one in BASES.items() if issubclass(kind, of)), None)
    return _with(kind, ours) if ours else kind


BASES: dict[type, type] = {TabularInline: OurTabularInline, StackedInline: OurStackedInline}


def _with(kind: type, *bases: type) -> Any:
    first, *rest = bases
    order = (first, kind, *rest) if rest else (kind, first)
    try:
        return type(kind.__name__, order, {"__module__": kind.__module__})
    except TypeError:  # its bases have an order that does not go with ours
        return kind
