"""Wakeful's settings, with the user model of the team."""

from config.settings import *  # noqa: F403
from config.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "office"]
AUTH_USER_MODEL = "office.Member"
