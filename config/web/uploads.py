from typing import Any, NoReturn

from django.core.exceptions import SuspiciousMultipartForm
from django.core.files.uploadhandler import FileUploadHandler


class RefuseFiles(FileUploadHandler):
    """Answers 400 to file uploads: no form takes a file, and Django would write it to disk before checking permissions."""

    def new_file(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise SuspiciousMultipartForm("this site takes no files")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        return None

    def file_complete(self, file_size: int) -> None:
        return None
