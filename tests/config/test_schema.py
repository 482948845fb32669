"""The migrations make the tables as the models say."""

import pytest
from django.apps import apps
from django.db import connection

pytestmark = pytest.mark.django_db

OURS = ("agents", "runs", "triggers", "config")


def test_each_constraint_and_index_of_the_models_is_in_the_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class UNION ALL SELECT conname FROM pg_constraint")
        there = {name for (name,) in cursor.fetchall()}

    declared = {
        part.name
        for label in OURS
        for model in apps.get_app_config(label).get_models()
        for part in (*model._meta.constraints, *model._meta.indexes)
    }
    assert len(declared) > 100
    assert declared - there == set()
