"""The settings of an ordinary project, as if Wakeful did not exist."""

import os
from pathlib import Path
from urllib.parse import urlsplit

_url = urlsplit(os.environ["DATABASE_URL"])
SECRET_KEY = os.environ["SECRET_KEY"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth.apps.AuthConfig",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.sites",
    "rest_framework",
    "django_celery_beat",
    "office",
]
AUTH_USER_MODEL = "office.Member"
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.lstrip("/"),
        "HOST": _url.hostname,
        "PORT": _url.port,
        "USER": _url.username,
        "PASSWORD": _url.password,
    },
    "archive": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DATABASE_ROUTERS = ["office.routers.EverythingToTheArchive"]
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "office"}}
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"},
}
MEDIA_ROOT = Path(os.environ.get("OFFICE_MEDIA", "/nonexistent"))
LANGUAGE_CODE = "de"
TIME_ZONE = "Europe/Vienna"
USE_TZ = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", "django.contrib.auth.hashers.PBKDF2PasswordHasher"]
CELERY_TASK_ALWAYS_EAGER = True
SITE_ID = 1
OFFICE_HOURS = (9, 17)
STATICFILES_DIRS = [Path(__file__).parent / "assets"]
