"""Wakeful's settings in this project, as `manage.py init office.project` writes them."""

from config.beside import settings_of
from config.settings import *  # noqa: F403
from office import project

globals().update(settings_of(project, globals(), without=[]))
