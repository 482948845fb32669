"""A web process that runs before `migrate` refuses what it could not keep."""

from tests.stack import Stack, eventually
from tests.triggers.sources.webhooks.hooks import make_source, signed


def test_a_web_process_before_migrate_answers_503_and_accepts_after(stack: Stack) -> None:
    with stack.orm():
        make_source()
    newest = "DELETE FROM django_migrations WHERE app = 'triggers' AND name LIKE '0009%%' RETURNING app, name, applied"
    [row] = stack.query(newest)
    stack.start("web").wait_ready()

    refused = stack.request("POST", "/hooks/shop/", body=b"{}", headers=signed(b"{}"))
    not_ready = stack.request("GET", "/health/ready")
    stack.query("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)", *row.values())
    eventually(lambda: stack.request("POST", "/hooks/shop/", body=b"{}", headers=signed(b"{}")).status in (200, 202))

    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "triggers.0009" in refused.body.decode() and "manage.py migrate" in refused.body.decode()
    assert not_ready.json()["migrations"] == "pending"
    assert stack.query("SELECT count(*) AS n FROM triggers_event") == [{"n": 1}]
