import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from config.migrated import RequireMigrations
from config.web import Web

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = Web(
    RequireMigrations(get_wsgi_application()),
    places=settings.WAKEFUL_WEB_REQUESTS,
    most=settings.WAKEFUL_MAX_BODY,
    patience=settings.WAKEFUL_BODY_TIMEOUT.total_seconds(),
)

from config.presence import be_present  # noqa: E402  (models are loaded by now)

be_present()
