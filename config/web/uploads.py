from typing import Any, NoReturn

from django.core.exceptions import SuspiciousMultipartForm
from django.core.files.uploadhandler import FileUploadHandler


class RefuseFiles(FileUploadHandler):
    """No form of this site takes a file, and Django would write one to disk before it asks who sends it. Answered with 400."""

    def new_file(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise SuspiciousMultipartForm("this site takes no files")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        return None

    def file_complete(self, file_size: int) -> None:
        return None
