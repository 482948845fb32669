"""The addresses of the API: /api/v1/…, its description at /api/schema/, and the same for readers at /api/docs/."""

from typing import Any

from django.urls import include, path
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.routers import SimpleRouter

from config.api_document import Description
from config.api_reference import reference
from runs.api.routes import router as runs
from triggers.api.routes import router as triggers

router = SimpleRouter()
router.registry += [*triggers.registry, *runs.registry]

urlpatterns = [
    path("v1/", include(router.urls)),
    path("schema/", Description.as_view(), name="schema"),
    path("docs/", reference, name="api_docs"),
    path("docs/<slug:resource>/", reference, name="api_docs_of"),
]


class BearerToken(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How drf-spectacular documents our authentication."""

    target_class = "triggers.api.authentication.TokenAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
