"""What a browser loads: static files are kept until they change, and answers are compressed."""

import gzip
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.contrib.staticfiles.storage import staticfiles_storage
from django.test import Client

from config.web.static_files import FOR_A_YEAR

Load = Callable[..., tuple[Any, bytes]]

STYLES = staticfiles_storage.url("console/console.css")


@pytest.fixture
def load(client: Client) -> Iterator[Load]:
    with ExitStack() as answers:

        def load(address: str, **headers: str) -> tuple[Any, bytes]:
            answer = client.get(address, headers=headers)
            answers.callback(answer.close)
            return answer, b"".join(answer)

        yield load


def test_an_address_names_the_content(load: Load) -> None:
    answer, _ = load(STYLES)

    assert re.fullmatch(r"/static/console/console\.css\?v=[0-9a-f]{8}", STYLES)
    assert answer["Cache-Control"] == FOR_A_YEAR


@pytest.mark.parametrize("address", [STYLES.partition("?")[0], f"{STYLES}0", "/static/console/console.css?v="])
def test_an_address_of_another_content_is_kept_for_a_minute(load: Load, address: str) -> None:
    answer, _ = load(address)

    assert answer.status_code == 200
    assert answer["Cache-Control"] == "max-age=60, public"


def test_a_file_that_is_not_there_has_an_address_and_is_not_found(load: Load) -> None:
    address = staticfiles_storage.url("console/gone.css")
    answer, _ = load(address)

    assert address == "/static/console/gone.css"
    assert answer.status_code == 404


def test_static_files_are_compressed(load: Load) -> None:
    _, plain = load(STYLES)

    _, compressed = load(STYLES, accept_encoding="gzip")

    assert gzip.decompress(compressed) == plain
    assert len(compressed) < len(plain) / 2


@pytest.mark.django_db
def test_pages_are_compressed_and_load_no_charts_and_no_letters(admin_client: Client, load: Load) -> None:
    page = admin_client.get("/admin/", headers={"accept-encoding": "gzip"})

    text = gzip.decompress(page.content).decode()
    for name in ("js/chart/chart.js", "fonts/inter/styles.css"):
        address = staticfiles_storage.url(f"unfold/{name}")
        assert address in text
        assert len(load(address)[1]) < 300
