"""`/api/v1/calendars/`"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.resource import Refusal
from triggers.api.fields import BySlugResource, naming
from triggers.api.schedules_json import CalendarBody, CalendarSerializer, DaysBody
from triggers.models import ExclusionCalendar
from triggers.schedules.calendars import change_calendar, create_calendar, delete_calendar


class CalendarResource(BySlugResource):
    """Days on which schedules that name a calendar do not fire."""

    required_permissions = {
        "list": "triggers.view_exclusioncalendar",
        "retrieve": "triggers.view_exclusioncalendar",
        "create": "triggers.add_exclusioncalendar",
        "update": "triggers.change_exclusioncalendar",
        "destroy": "triggers.delete_exclusioncalendar",
    }
    queryset = ExclusionCalendar.objects.all()
    serializer_class = CalendarSerializer

    @extend_schema(request=CalendarBody, responses={201: CalendarSerializer})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Create a calendar."""
        body = CalendarBody.read(request)
        with naming("days"):
            calendar = create_calendar(slug=body["slug"], days=body["days"], by=str(request.user))
        return Response(self.get_serializer(calendar).data, status=201)

    @extend_schema(request=DaysBody, responses=CalendarSerializer)
    def update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Replace its days, for every schedule that names it."""
        body = DaysBody.read(request)
        with naming("days"):
            calendar = change_calendar(self.get_object(), days=body["days"], by=str(request.user))
        return Response(self.get_serializer(calendar).data)

    @extend_schema(responses={204: None, 409: Refusal})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete it; 409 while a schedule names it."""
        delete_calendar(self.get_object(), by=str(request.user))
        return Response(status=204)
