"""Forms as senders make them."""

from collections.abc import Mapping

BOUNDARY = "xYzZY"


def multipart(
    fields: Mapping[str, str] | Mapping[str, bytes] | Mapping[str, str | bytes], *files: tuple[str, str, bytes]
) -> tuple[bytes, dict[str, str]]:
    """A multipart form with these fields and files (name, type, content), and its headers."""
    parts = [
        f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode()
        + (value.encode() if isinstance(value, str) else value)
        for name, value in fields.items()
    ]
    parts += [
        f'Content-Disposition: form-data; name="attachment{number}"; filename="{name}"\r\nContent-Type: {kind}\r\n\r\n'.encode()
        + content
        for number, (name, kind, content) in enumerate(files, start=1)
    ]
    body = b"".join(b"--%b\r\n%b\r\n" % (BOUNDARY.encode(), part) for part in parts) + f"--{BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
