"""The login form: a user name that no user can have is refused before anything is done with it."""

from typing import Any

from django.core.validators import MaxLengthValidator
from unfold.forms import AuthenticationForm


class LoginForm(AuthenticationForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name = self.fields["username"]
        name.validators.append(MaxLengthValidator(name.max_length))  # Django only shows it in the browser
