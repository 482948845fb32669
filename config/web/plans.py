"""Pages are planned with the values that they ask for."""

from collections.abc import Callable

from django.db import connection
from django.http import HttpRequest, HttpResponseBase

PAGES = ("/admin/", "/api/")


class PlanWithValues:
    """While a page is read, its statements are not prepared. A prepared one is planned without its values after some uses, and then uses
    no index of a part of a table: the list of failed runs would read the table of all runs."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        driver = connection.connection
        if driver is None or request.method not in ("GET", "HEAD") or not request.path_info.startswith(PAGES):
            return self.get_response(request)
        before, driver.prepare_threshold = driver.prepare_threshold, None
        try:
            return self.get_response(request)
        finally:
            driver.prepare_threshold = before
