"""What our webhook door is measured beside: a DRF view that inserts one row, in a project as `startproject` makes it."""

import os
import sys

import django
from django.conf import settings

if not settings.configured:
    from urllib.parse import urlsplit

    database = urlsplit(os.environ["BENCH_DATABASE"])
    settings.configure(
        SECRET_KEY="for the bench only",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="bench.beside.bare_view",
        MIDDLEWARE=[
            "django.middleware.security.SecurityMiddleware",
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
            "django.middleware.clickjacking.XFrameOptionsMiddleware",
        ],
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "django.contrib.messages",
            "rest_framework",
        ],
        USE_TZ=True,
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": database.path[1:],
                "USER": database.username,
                "PASSWORD": database.password,
                "HOST": database.hostname,
                "PORT": database.port,
                "CONN_MAX_AGE": None,
                "OPTIONS": {"server_side_binding": True, "prepare_threshold": 2},
            }
        },
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []},
    )
    django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.urls import path  # noqa: E402
from rest_framework.request import Request  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView  # noqa: E402


class Delivery(models.Model):
    data = models.JSONField()
    received_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "bare"

    def __str__(self) -> str:
        return str(self.pk)


class BareView(APIView):
    def post(self, request: Request) -> Response:
        delivery = Delivery(data=request.data)
        delivery.save(force_insert=True)
        return Response({"id": delivery.pk}, 202)


def make_table() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Delivery)


urlpatterns = [path("hooks/bench/", BareView.as_view())]
application = get_wsgi_application()

if __name__ == "__main__" and sys.argv[1:] == ["migrate"]:
    make_table()
