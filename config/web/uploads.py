"""Files in forms: only the pages of the team's own models take them, from users who may enter the admin."""

from typing import Any

from django.apps import apps
from django.core.exceptions import SuspiciousMultipartForm
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest

from config.routing import is_ours
from runs.users import may_enter


class RefuseFiles(FileUploadHandler):
    """Answers 400 to files that no form takes: Django would write them to disk before checking permissions. Others are for the handlers
    after it."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        if self.request is None or not _takes_files(self.request):
            raise SuspiciousMultipartForm("this page takes no files")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        return raw_data

    def file_complete(self, file_size: int) -> None:
        return None


def _takes_files(request: HttpRequest) -> bool:
    match, user = request.resolver_match, getattr(request, "user", None)
    if match is None or user is None or not user.is_authenticated or not may_enter(user):
        return False
    return match.app_name == "admin" and any((match.url_name or "").startswith(f"{label}_") for label in _labels())


def _labels() -> list[str]:
    """The apps that are neither Wakeful's nor Django's."""
    return [
        one.label for one in apps.get_app_configs() if not is_ours(one.label) and not one.name.startswith("django.")
    ]
