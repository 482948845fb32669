"""`/docs/`: no login, no database. The pages describe Wakeful, not this installation."""

from django.http import Http404, HttpRequest, HttpResponse
from django.templatetags.static import static
from django.urls import reverse
from django.views.decorators.http import require_safe

from config.documentation.console_pages import console_page_of
from config.documentation.layout import address, layout
from config.documentation.pages import pages
from config.documentation.search import search


@require_safe
def documentation(request: HttpRequest, slug: str = "") -> HttpResponse:
    every = pages()
    page = every.by_slug.get(slug)
    if page is None or "" not in every.by_slug:
        raise Http404("no such page of the documentation")
    live = {
        "stylesheet": static("documentation/docs.css"),
        "icon": static("console/icon.svg"),
        "console": reverse("admin:index"),
        "api": reverse("api_docs"),
        "has_search": True,
    }
    if not slug and (words := request.GET.get("q", "").strip()):
        found = [(address(hit.page, None), hit) for hit in search(every.by_slug.values(), words)]
        return HttpResponse(layout(every, None, **live, words=words, found=found))
    return HttpResponse(layout(every, page, **live, in_console=console_page_of(slug)))
