"""The file of an event is opened only while it is that file, below the roots."""

import os
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agents import Event
from agents.exceptions import is_permanent
from agents.files import FileChanged, FileMetadata, FileRefused, open_file
from triggers.sources.files.report import named


@pytest.fixture
def place(tmp_path: Path, settings: Any) -> Path:
    settings.WAKEFUL_FILE_ROOTS = [str(tmp_path / "root")]
    (tmp_path / "root" / "in").mkdir(parents=True)
    return tmp_path / "root" / "in"


def event_of(path: Path, *, is_huge: bool = False) -> Event:
    digest = f"sha256:{sha256(path.read_bytes()).hexdigest()}"
    fingerprint = FileMetadata.of(path.stat()).fingerprint if is_huge else digest
    return event({"path": str(path), "fingerprint": fingerprint})


def event(data: Any) -> Event:
    return Event(id=uuid4(), type="file.created", source="in", time=datetime.now(UTC), data=data)


@pytest.mark.parametrize("is_huge", [False, True])
def test_the_file_is_opened_while_it_is_the_one_of_the_event(place: Path, is_huge: bool) -> None:
    path = place / "a.csv"
    path.write_text("1;2")
    woken = event_of(path, is_huge=is_huge)

    with open_file(woken) as file:
        assert file.read() == b"1;2"

    path.write_text("1;3")
    with pytest.raises(FileChanged) as changed, open_file(woken):
        pass
    assert is_permanent(changed.value)
    path.unlink()
    with pytest.raises(FileChanged, match="not there"), open_file(woken):
        pass


def test_a_file_that_is_written_to_while_it_is_read_is_refused_at_the_end(place: Path) -> None:
    path = place / "a.csv"
    path.write_text("1;2")

    with pytest.raises(FileChanged, match="while it was read"), open_file(event_of(path)) as file:
        with path.open("a") as more:
            more.write("3")
        file.read()


def test_an_event_of_any_sender_opens_nothing_outside_of_the_roots(place: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("1")
    (place / "link").symlink_to(secret)
    (place / "folder").symlink_to(tmp_path)
    os.mkfifo(place / "pipe")
    digest = f"sha256:{sha256(b'1').hexdigest()}"
    for path in (secret, place / "link", place / "folder" / "secret", place / ".." / ".." / "secret", place, "a.csv"):
        with pytest.raises((FileRefused, FileChanged)), open_file(event({"path": str(path), "fingerprint": digest})):
            pass
    refused: list[Any] = [
        None,
        [],
        {},
        {"path": 1},
        {"path": str(secret)},
        {"path": str(place / "pipe"), "fingerprint": "stat:"},
        {"path": "a", "path_bytes": "*"},
        *({"path": wrong} for wrong in ("a\0b", "\ud800", "")),
    ]
    for data in refused:
        with pytest.raises(FileRefused), open_file(event(data)):
            pass


def test_a_name_that_is_no_text_is_opened(place: Path) -> None:
    path = os.path.join(os.fsencode(place), b"caf\xe9.csv")
    with open(path, "wb") as written:
        written.write(b"1")

    with open_file(event({**named(path), "fingerprint": f"sha256:{sha256(b'1').hexdigest()}"})) as file:
        assert file.read() == b"1"
