"""Connect what lower rooms need from higher ones (`runs.ports`)."""

from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, BinaryIO

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import pre_delete

from agents.kernel import connecting, installation, object_stores, redaction
from config import facts
from config.health import watch as health
from config.links import absolute
from config.secrets import know_secrets, secrets_of_environment
from runs.connections import REVOCATION
from runs.connections.sealed import plain_tokens
from runs.notifications.alarms import TOPIC as ALARM
from runs.notifications.recipients import plain_addresses
from runs.ports import ports
from runs.queues import courier
from triggers import wiring as triggers
from triggers.sources.secrets import plain_secrets


def connect() -> None:
    triggers.connect()
    ports.absolute = absolute
    ports.slow |= {ALARM: health.send, REVOCATION: revoke}
    courier.further.append(health.Watch)
    know_secrets()
    installation.connect(facts)
    connecting.connect(lease)
    object_stores.connect(open_object)
    for model in apps.get_models():
        if model._meta.concrete_model is get_user_model():  # a proxy deletes the same rows
            pre_delete.connect(end_connections, sender=model)
    redaction.look_up = lambda: chain(secrets_of_environment(), plain_secrets(), plain_addresses(), plain_tokens())


def open_object(wanted: object_stores.ObjectVersion, /, *, most: int) -> AbstractContextManager[BinaryIO]:
    # Imported here: few agents open objects.
    from triggers.sources.files import open_object as opening

    return opening.open_object(wanted, most=most)


def lease(name: str, /, *, refused: str = "", may_retry: bool = True) -> connecting.Lease:
    # Imported here, as below: only processes that use a connection load its clients.
    from runs.connections import lease as leases

    return leases.lease(name, refused=refused, may_retry=may_retry)


def end_connections(instance: Any, **_: Any) -> None:
    """Of a user who is being deleted."""
    from runs.connections import ending

    with transaction.atomic():
        ending.end_connections_of(instance.pk)


def revoke(payload: dict[str, Any]) -> None:
    from runs.connections import revocation

    revocation.settle(payload)
