from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

LogIn = Callable[..., Client]


@pytest.fixture
def log_in(db: None) -> LogIn:
    """A function that logs a staff user in, with the permissions named as `app.codename`; without any, all of them."""

    def logged_in(*permissions: str, name: str = "ada") -> Client:
        user = User.objects.create_user(name, password="x", is_staff=True, is_superuser=not permissions)
        for permission in permissions:
            app, codename = permission.split(".")
            user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
        client = Client()
        client.force_login(user)
        return client

    return logged_in


@pytest.fixture
def admin(log_in: LogIn) -> Client:
    return log_in()
