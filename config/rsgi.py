"""What granian serves: `granian --interface rsgi config.rsgi:application`."""

import os
import resource

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

# Each connection is an open file, and the usual limit of 1,024 is less than granian's --backpressure lets in.
FILES = 8192
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if soft != resource.RLIM_INFINITY and soft < FILES:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard == resource.RLIM_INFINITY else min(FILES, hard), hard))
