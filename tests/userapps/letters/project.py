"""The settings of a project that enqueues tasks: a connection, TASKS, and nothing of Wakeful's."""

import os
from urllib.parse import urlsplit

_url = urlsplit(os.environ["DATABASE_URL"])
SECRET_KEY = os.environ["SECRET_KEY"]
INSTALLED_APPS: list[str] = []
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.lstrip("/"),
        "HOST": _url.hostname,
        "PORT": _url.port,
        "USER": _url.username,
        "PASSWORD": _url.password,
    }
}
TASKS = {
    "default": {"BACKEND": "wakeful.TaskBackend", "QUEUES": []},
    "exact": {"BACKEND": "wakeful.TaskBackend", "OPTIONS": {"effect": "transactional"}},
}
