import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from django.utils.crypto import get_random_string

from config.web.sessions import GIVEN

LogIn = Callable[..., Client]


@pytest.fixture
def log_in(db: None) -> LogIn:
    """A function that logs a staff user in, with the permissions named as `app.codename`; without any, all of them."""

    def logged_in(*permissions: str, name: str = "ada") -> Client:
        user = User.objects.create_user(name, password="x", is_staff=True, is_superuser=not permissions)
        for permission in permissions:
            app, codename = permission.split(".")
            user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
        return client_of(user)

    return logged_in


def client_of(user: User) -> Client:
    """With the session of a login that was just now. The login itself takes eighteen statements and others test it."""
    of_user = {
        SESSION_KEY: str(user.pk),
        BACKEND_SESSION_KEY: settings.AUTHENTICATION_BACKENDS[-1],
        HASH_SESSION_KEY: user.get_session_auth_hash(),
        GIVEN: time.time(),
    }
    session = Session.objects.create(
        session_key=get_random_string(32).lower(),
        session_data=SessionStore().encode(of_user),
        expire_date=timezone.now() + timedelta(days=1),
    )
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
    return client


@pytest.fixture
def admin(log_in: LogIn) -> Client:
    return log_in()
