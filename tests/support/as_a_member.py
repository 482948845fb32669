"""A visit to every page of an installation whose users are the team's own: by e-mail address, in a table of its own. It is a script
for a process whose settings are those of tests/userapps/office; what it has found is printed as JSON."""

import json
import os
import re
import sys
from io import StringIO
from typing import Any

import django

django.setup()

from django.apps import apps  # noqa: E402
from django.conf import settings  # noqa: E402
from django.contrib import admin  # noqa: E402
from django.contrib.auth import get_user_model  # noqa: E402
from django.core.files.uploadedfile import SimpleUploadedFile  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import NoReverseMatch, get_resolver, reverse  # noqa: E402

get_resolver().url_patterns  # noqa: B018  (loads the console)
from config.celery import app  # noqa: E402
from config.web.sessions import GIVEN  # noqa: E402
from runs.models import AuditEntry, Recipient  # noqa: E402
from runs.notifications.inbox import has_reader  # noqa: E402
from tests.support.console import make_one_of_each  # noqa: E402

MAIL = "admin@localhost"
PASSWORD = "correct horse battery staple"


def prepared() -> str:
    said = StringIO()
    call_command("prepare", stdout=said, stderr=StringIO())
    return said.getvalue()


def addresses() -> dict[str, str]:
    """The address of every page of the console, by its name."""
    rows = {
        **make_one_of_each(1),
        "office_member": get_user_model()._default_manager.get(),
        "office_guest": get_user_model()._default_manager.get(),
    }
    found = {name: reverse(name) for name in ("admin:index", "coming", "overnight", "inbox", "docs")}
    for panel in admin.site._registry.values():
        noun = f"{panel.opts.app_label}_{panel.opts.model_name}"
        for name in {pattern.name for pattern in panel.get_urls() if pattern.name}:
            row = rows.get(noun)
            for args in ([], *([[row.pk], [row.pk, "step"], [row.pk, 1]] if row else [])):
                try:
                    found[f"admin:{name}"] = reverse(f"admin:{name}", args=args)
                    break
                except NoReverseMatch:
                    continue
    return found


def orders() -> list[Any]:
    return list(apps.get_app_config("office").get_model("order")._default_manager.all())


def _unwritten() -> str:
    said = StringIO()
    try:
        call_command("makemigrations", check=True, dry_run=True, stdout=said)
    except SystemExit:
        said.write("(exit)")
    return said.getvalue()


def main() -> dict[str, Any]:
    first, again = prepared(), prepared()
    client = Client(headers={"host": "127.0.0.1"})
    login = [
        client.post("/admin/login/", {"username": name, "password": password}).status_code
        for name, password in (("nobody", PASSWORD), (MAIL, "wrong"), (MAIL, PASSWORD))
    ]
    pages = {name: client.get(path, follow=True).status_code for name, path in addresses().items()}
    letter = SimpleUploadedFile("letter.txt", b"Dear customer")
    order = {"customer": get_user_model()._default_manager.get().pk, "total": 3, "letter": letter}
    lines = {f"line_set-{name}": number for name, number in (("TOTAL_FORMS", 0), ("INITIAL_FORMS", 0))}
    made = client.post("/admin/office/order/add/", {**order, **lines}).status_code
    letter.seek(0)
    refused = client.post("/admin/runs/recipient/add/", {"name": "x", "letter": letter}).status_code
    letter.seek(0)
    anonymous = Client(headers={"host": "127.0.0.1"}).post("/admin/office/order/add/", {**order, **lines}).status_code
    form = client.get("/admin/office/order/add/").content.decode()
    session = client.session
    session[GIVEN] -= settings.WAKEFUL_PASSWORD_AGAIN.total_seconds() + 60
    session.save()
    member = get_user_model()._default_manager.get()
    asked = {
        path: (client.post(path, {"email": "eve@example.com"}).headers.get("Location", "").partition("?")[0])
        for path in (
            "/admin/office/member/add/",
            f"/admin/office/member/{member.pk}/change/",
            f"/admin/office/member/{member.pk}/password/",
            f"/admin/office/guest/{member.pk}/change/",
            f"/admin/office/guest/{member.pk}/delete/",
            "/admin/office/guest/",
            "/admin/auth/group/add/",
        )
    }
    again_given = client.post("/admin/password-again/", {"password": PASSWORD}).status_code
    Recipient.objects.update(active=False)
    Recipient.objects.create(name="read", address=f"inbox:{MAIL}", channel="inbox")
    Recipient.objects.create(name="unread", address="inbox:admin", channel="inbox")
    said = StringIO()
    try:
        call_command("doctor", stdout=said, stderr=said)
    except SystemExit:
        said.write("(exit)")
    except Exception as error:  # what the command would end with
        said.write(repr(error))
    ready = client.get("/health/ready")
    return {
        "prepared": [first, again],
        "login": login,
        "pages": pages,
        "asked": asked,
        "again": again_given,
        "uploads": [made, refused, anonymous],
        "stored": [order.letter.read().decode() for order in orders()],
        "inputs": re.findall(r'<input type="number" name="total"[^>]*class="([^"]*)"', form),
        "migrations": _unwritten(),
        "settings": {
            name: str(getattr(settings, name))
            for name in (
                "LANGUAGE_CODE",
                "TIME_ZONE",
                "OFFICE_HOURS",
                "SITE_ID",
                "DEFAULT_AUTO_FIELD",
                "DATABASE_ROUTERS",
            )
        },
        "eager": app.conf.task_always_eager,
        "sidebar": client.get("/admin/").content.decode().count("/admin/office/member/"),
        "readers": [has_reader(f"inbox:{MAIL}"), has_reader("inbox:admin")],
        "doctor": said.getvalue(),
        "ready": [ready.status_code, ready.json()],
        "metrics": client.get("/metrics").status_code,
        "audit": sorted(set(AuditEntry.objects.values_list("by", "action"))),
    }


if __name__ == "__main__":
    real, sys.stdout = sys.stdout, sys.stderr
    found = main()
    print(json.dumps(found), file=real)
    real.flush()
    os._exit(0)
