"""`/admin/find/`: what the dialog of the header shows while a reader types, and the page of it where scripts do not run."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from config.console.search.find import LONGEST, SHORTEST, find

PART = "X-Part"  # a request header: the hits alone, without the page around them


@require_safe
def find_page(request: HttpRequest) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:LONGEST]
    found = {"text": text, "kinds": find(request, text), "is_short": len(text) < SHORTEST, "shortest": SHORTEST}
    if PART in request.headers:
        answer = TemplateResponse(request, "admin/console/found.html", found)
        answer["Cache-Control"] = "no-store"
        return answer
    context = {**admin.site.each_context(request), "title": f"Search: {text}" if text else "Search", **found}
    return TemplateResponse(request, "admin/console/find.html", context)
