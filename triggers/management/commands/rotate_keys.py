from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.sources.secrets import KeyUse, keys_in_use, reencrypt

MAY_GO = (
    "Every secret is encrypted with the first key. When all processes run with this list, repeat --check; "
    "if it succeeds, you can drop the other keys. Backups made before now still need them."
)


class Command(BaseCommand):
    help = "Encrypt every secret with the first of WAKEFUL_ENCRYPTION_KEYS; safe to interrupt and to repeat."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="only print which keys are needed; exit code 1 if any but the first is"
        )

    def handle(self, *, check: bool, **options: Any) -> None:
        try:
            if not check:
                self.stdout.write(f"{reencrypt(by=operator())} encrypted again")
            use = keys_in_use()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        self._report(use)

    def _report(self, use: KeyUse) -> None:
        for place, count in sorted(use.secrets.items()):
            self.stdout.write(f"key {place}: {count} secret{'s' if count > 1 else ''}")
        if use.unreadable:
            raise CommandError(
                f"No key can decrypt the secrets of {', '.join(use.unreadable)}. Add the key that encrypted them to "
                "WAKEFUL_ENCRYPTION_KEYS, or give these sources new secrets."
            )
        if not use.only_first:
            raise CommandError("Some secrets need a key other than the first: run `manage.py rotate_keys`.")
        self.stdout.write(MAY_GO)
