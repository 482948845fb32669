"""What our Beat is measured beside: a project that has django-celery-beat and nothing else, as its documentation sets one
up; `python -m bench.beside.celery_beat migrate`, then `celery -A bench.beside.celery_beat beat`."""

import os
import sys
from urllib.parse import urlsplit

import django
from celery import Celery
from django.conf import settings

if not settings.configured:
    database = urlsplit(os.environ["BENCH_DATABASE"])
    settings.configure(
        SECRET_KEY="for the bench only",
        INSTALLED_APPS=["django.contrib.contenttypes", "django_celery_beat"],
        USE_TZ=True,
        TIME_ZONE="UTC",
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": database.path[1:],
                "USER": database.username,
                "PASSWORD": database.password,
                "HOST": database.hostname,
                "PORT": database.port,
                "CONN_MAX_AGE": None,
            }
        },
    )
    django.setup()

app = Celery("peer", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    beat_scheduler="django_celery_beat.schedulers:DatabaseScheduler",
    timezone="UTC",
    result_expires=None,  # no task of its own among those that are measured
)

if __name__ == "__main__" and sys.argv[1:] == ["migrate"]:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
