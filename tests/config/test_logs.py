"""The lines of the log about requests that are refused."""

import logging
import logging.config
import re
from io import StringIO
from pathlib import Path
from typing import Any

import billiard.pool
import pytest
from django.contrib.auth.models import User
from django.core.exceptions import BadRequest, DisallowedHost, PermissionDenied
from django.test import Client

from config.logs import CHILD_EXITED, configuration


def lines_of(exception: Exception, format: str) -> str:
    """What the log has of a refusal that Django logs."""
    wanted = configuration(format=format, level="INFO")["formatters"]["structlog"]
    formatter = wanted.pop("()")(**wanted)
    try:
        raise exception
    except type(exception) as raised:
        about = (type(raised), raised, raised.__traceback__)
        record = logging.LogRecord("django.request", logging.WARNING, __file__, 1, "Refused: %s", ("/x/",), about)
    return str(formatter.format(record))


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("exception", [PermissionDenied("no"), DisallowedHost("evil"), BadRequest("no")])
def test_a_refusal_is_one_line(exception: Exception, format: str) -> None:
    line = lines_of(exception, format)
    assert "Refused: /x/" in line
    assert "\n" not in line.strip() and "Traceback" not in line


@pytest.mark.parametrize("format", ["text", "json"])
def test_an_error_of_ours_has_its_traceback(format: str) -> None:
    assert re.search(r"ZeroDivisionError", lines_of(ZeroDivisionError("ours"), format))


@pytest.mark.parametrize("format", ["text", "json"])
def test_what_the_variables_of_the_code_hold_is_not_logged(format: str) -> None:
    """It may be personal, a query of the database, or megabytes."""
    line = lines_of(ZeroDivisionError("ours"), format)

    assert "lines_of" in line
    assert "wanted" not in line  # a variable there


@pytest.mark.django_db
def test_a_user_without_rights_fills_no_log(client: Client) -> None:
    client.force_login(User.objects.create_user("ada", password="x", is_staff=True))
    output = StringIO()
    handler: Any = logging.StreamHandler(output)
    wanted = configuration(format="text", level="INFO")["formatters"]["structlog"]
    handler.setFormatter(wanted.pop("()")(**wanted))
    logger = logging.getLogger("django.request")
    logger.addHandler(handler)
    try:
        assert client.get("/admin/triggers/source/add/").status_code == 403
    finally:
        logger.removeHandler(handler)
    assert "/admin/triggers/source/add/" in output.getvalue()
    assert len(output.getvalue().strip().splitlines()) == 1


def test_the_end_of_a_child_is_a_warning() -> None:
    """billiard calls it an error; the run of that child has a record of its own."""
    wanted = configuration(format="text", level="INFO")["filters"]["lost_children"]["()"]()
    assert CHILD_EXITED in Path(billiard.pool.__file__).read_text()
    record = logging.LogRecord(
        "multiprocessing", logging.ERROR, __file__, 1, CHILD_EXITED, ("Fork-1", 7, "signal 9"), None
    )

    assert wanted.filter(record)

    assert (record.levelno, record.levelname) == (logging.WARNING, "WARNING")
