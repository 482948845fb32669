from typing import Any

from django.http import HttpRequest


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    return context
