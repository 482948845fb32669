"""The ways in alone, without the rest of the site."""

from django.urls import path, re_path

from runs.api.resource import Resource
from triggers.models import Event
from triggers.sources.cloudevents.intake import EventIntake
from triggers.sources.switches.views import ADDRESS, PingView
from triggers.sources.webhooks.views import HookView


class Events(EventIntake, Resource):
    required_permissions = {"create": "triggers.add_event"}
    queryset = Event.objects.all()


urlpatterns = [
    re_path(r"^hooks/(?P<slug>[-\w]+)/?$", HookView.as_view()),
    re_path(ADDRESS, PingView.as_view()),
    path("api/v1/events/", Events.as_view({"post": "create"})),
]
