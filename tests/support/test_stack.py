"""The test stack itself: processes can be started, frozen, killed and looked into."""

from tests.support.stack import Stack, StackMaker


def test_a_stack_has_a_migrated_database_of_its_own(make_stack: StackMaker) -> None:
    first, second = make_stack(), make_stack()

    first.query("CREATE TABLE only_here (x int)")

    assert first.query("SELECT count(*) AS n FROM django_migrations")[0]["n"] > 0
    assert not second.query("SELECT to_regclass('only_here') AS t")[0]["t"]


def test_models_of_the_test_reach_the_database_of_the_stack(stack: Stack) -> None:
    from django.contrib.auth.models import User

    with stack.orm():
        User.objects.create_user("ada")

    assert stack.query("SELECT username FROM auth_user") == [{"username": "ada"}]


def test_own_servers_may_be_killed(make_stack: StackMaker) -> None:
    stack = make_stack(own_servers=True)
    assert stack.servers.postgres and stack.servers.valkey

    stack.query("CREATE TABLE kept (x int)")
    stack.servers.postgres.kill()
    stack.servers.postgres.start()
    stack.servers.valkey.kill()
    stack.servers.valkey.start()
    stack.servers.valkey.flush()

    assert stack.query("SELECT count(*) AS n FROM kept")[0]["n"] == 0
