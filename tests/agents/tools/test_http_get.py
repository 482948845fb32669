"""The tool http_get, over the guards of http_tool."""

from collections.abc import Iterator

import pytest

from tests.agents.tools.test_http import Site, site
from tests.support.tools import call

__all__ = ["site"]
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _allowed(site: Site, settings: pytest.FixtureRequest) -> Iterator[None]:
    settings.WAKEFUL_HTTP_ALLOW = [f"127.0.0.1:{site.port}"]  # type: ignore[attr-defined]
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]  # type: ignore[attr-defined]
    yield


def test_http_get_reads_an_allowed_host_and_taints_the_run(site: Site) -> None:
    called = call("http_get", {"url": site.url("/page")})

    assert "hello from /page" in called.results[0]
    assert "<untrusted-data" in called.results[0]
    assert called.done.is_tainted


def test_another_host_is_refused_and_not_called(site: Site) -> None:
    called = call("http_get", {"url": site.url("/page", host="localhost")})

    assert "its host is not allowed here" in called.results[0]
    assert not site.asked


def test_without_a_network_of_ones_own_no_address_inside_is_called(site: Site, settings: pytest.FixtureRequest) -> None:
    settings.WAKEFUL_HTTP_NETWORKS = []  # type: ignore[attr-defined]

    called = call("http_get", {"url": site.url("/page")})

    assert "not a public one" in called.results[0]
    assert not site.asked
