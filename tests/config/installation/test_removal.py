"""Nothing that migrations make is forgotten when Wakeful is removed; `tests/integration/test_leaving.py` removes it."""

import pytest
from django.apps import apps

from config.installation.removal import SEQUENCES, TABLES
from runs.db.sql import fetch

WITHOUT_OWNER = """
SELECT relname FROM pg_class relation WHERE relkind IN ('r', 'p', 'v', 'm', 'S')
  AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
  AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = relation.oid AND classid = 'pg_class'::regclass AND deptype IN ('a', 'i', 'e')
    AND relation.relkind = 'S')
"""


@pytest.mark.django_db
def test_each_relation_is_of_a_model_or_is_listed() -> None:
    of_models = {model._meta.db_table for model in apps.get_models(True, True)}
    there = {name for (name,) in fetch(WITHOUT_OWNER)}

    assert there - of_models - {"django_migrations"} == {*TABLES, *SEQUENCES}
