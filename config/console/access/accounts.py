"""Django's users and groups in the console's style. Only superusers grant permissions.

A user model of the team's own is shown by its own ModelAdmin, if it has one.
"""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as BaseGroupAdmin
from django.contrib.auth.admin import UserAdmin as BaseUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Model, Q
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from config.console.parts.audit_entries import Audited
from runs.users import is_djangos_own, is_superuser

GRANTING = ("is_superuser", "groups", "user_permissions")


class UserPanel(Audited, BaseUserAdmin, ModelAdmin):  # type: ignore[type-arg,misc]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    # A form has only the fields of its fieldsets, so posting another field changes nothing.
    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        sets = super().get_fieldsets(request, obj)
        if _is_superuser(request):
            return sets
        return [
            (title, {**options, "fields": tuple(name for name in options["fields"] if name not in GRANTING)})
            for title, options in sets
        ]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and _may_touch(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_touch(request, obj)

    def audit_detail(self, obj: User) -> dict[str, Any]:
        return {
            "roles": sorted(obj.groups.values_list("name", flat=True)),
            "permissions": sorted(obj.user_permissions.values_list("codename", flat=True)),
            "staff": obj.is_staff,
            "superuser": obj.is_superuser,
            "active": obj.is_active,
        }


class GroupPanel(Audited, BaseGroupAdmin, ModelAdmin):  # type: ignore[misc]
    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return _is_superuser(request)

    def audit_detail(self, obj: Group) -> dict[str, Any]:
        return {"permissions": sorted(obj.permissions.values_list("codename", flat=True))}


def _is_superuser(request: HttpRequest) -> bool:
    return is_superuser(request.user)


def _may_touch(request: HttpRequest, user: User | None) -> bool:
    """Whether the user may change or delete the account or set its password. Requires every permission the account has:
    otherwise setting its password would give the user those permissions."""
    if user is None or _is_superuser(request):
        return True
    # Read from the tables: Django reports no permissions for an inactive user, who may become active again.
    granted = Permission.objects.filter(Q(user=user) | Q(group__user=user)).values_list(
        "content_type__app_label", "codename"
    )
    return not user.is_superuser and request.user.has_perms([f"{app}.{codename}" for app, codename in granted])


admin.site.unregister(Group)
admin.site.register(Group, GroupPanel)
if is_djangos_own():
    admin.site.unregister(User)
    admin.site.register(User, UserPanel)
