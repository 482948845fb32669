"""The base of all API resources: cursor lists, strict input, and refusals that name the fix."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, cast

from django.core.exceptions import ObjectDoesNotExist
from django.core.exceptions import ValidationError as InvalidValue
from django.db import DataError
from django.db.models import QuerySet
from rest_framework import status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import CharField, IntegerField, Serializer
from rest_framework.viewsets import GenericViewSet

from runs.db.outage import CONNECTION_ERRORS
from runs.exceptions import IllegalState

RETRY_AFTER = "5"  # seconds, while the database is away


class Query(Serializer[Any]):
    """Query parameters of a request; it ignores other names, such as the cursor's."""

    @classmethod
    def read(cls, request: Request) -> dict[str, Any]:
        query = cls(data=request.query_params)
        query.is_valid(raise_exception=True)
        return cast(dict[str, Any], query.validated_data)


class NewestFirst(CursorPagination):
    """Pages by an id that is ordered by time, so they stay correct while rows are added; `?limit=` sets their length."""

    ordering = "-id"
    page_size_query_param = "limit"
    max_page_size = 500

    class Limit(Query):
        limit = IntegerField(min_value=1, default=50)

    def get_page_size(self, request: Request) -> int:
        wanted: int = self.Limit.read(request)["limit"]
        return min(wanted, self.max_page_size)

    def paginate_queryset(self, queryset: QuerySet[Any] | Sequence[Any], request: Request, view: Any = None) -> Any:
        try:
            return super().paginate_queryset(queryset, request, view)
        except (NotFound, InvalidValue, DataError, ValueError):
            raise ValidationError(
                {"cursor": ["Not a cursor of this list. Use the list's `next` and `previous` links."]}
            ) from None


class ById(NewestFirst):
    ordering = "id"


class BySlug(NewestFirst):
    ordering = "slug"


class Refusal(Serializer[Any]):
    """Why 409: the object's state forbids the action."""

    detail = CharField()
    status = CharField()


@contextmanager
def faults_at(field: str) -> Iterator[None]:
    """Answer 400 for a ValueError of a service, under the name of this field."""
    try:
        yield
    except ValueError as error:
        raise ValidationError({field: [str(error)]}) from None


@contextmanager
def faults_by_field(**renamed: str) -> Iterator[None]:
    """Answer 400 with each fault under its field, or under another name of it."""
    try:
        yield
    except InvalidValue as error:
        raise ValidationError({renamed.get(name, name): texts for name, texts in error.message_dict.items()}) from None


class Resource(GenericViewSet[Any]):
    """`required_permissions` names the Django permission of every action."""

    required_permissions: ClassVar[Mapping[str, str]]
    pagination_class: type[NewestFirst] | None = NewestFirst  # None: the list is one answer

    def handle_exception(self, error: Exception) -> Response:
        if isinstance(error, IllegalState):
            return Response({"detail": str(error), "status": error.status}, status=status.HTTP_409_CONFLICT)
        if isinstance(error, CONNECTION_ERRORS):
            return Response(
                {"detail": "The database does not answer. Retry after the given time."},
                status=status.HTTP_503_SERVICE_UNAVAILABLE,
                headers={"Retry-After": RETRY_AFTER},
            )
        if isinstance(error, ObjectDoesNotExist):
            return super().handle_exception(
                NotFound()
            )  # deleted since the request began, such as a run with a quiet gate
        return super().handle_exception(error)
