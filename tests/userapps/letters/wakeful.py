"""Wakeful's settings in this project, as `manage.py init letters.project` writes them."""

from config.beside import settings_of
from config.settings import *  # noqa: F403
from letters import project

globals().update(settings_of(project, globals(), without=[]))
