"""Django's users and groups in the console's looks."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as BaseGroupAdmin
from django.contrib.auth.admin import UserAdmin as BaseUserAdmin
from django.contrib.auth.models import Group, User
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from config.console.audited import Audited

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserPanel(Audited, BaseUserAdmin, ModelAdmin):  # type: ignore[type-arg,misc]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def audit_detail(self, obj: User) -> dict[str, Any]:
        return {
            "roles": sorted(obj.groups.values_list("name", flat=True)),
            "permissions": sorted(obj.user_permissions.values_list("codename", flat=True)),
            "staff": obj.is_staff,
            "superuser": obj.is_superuser,
            "active": obj.is_active,
        }


@admin.register(Group)
class GroupPanel(Audited, BaseGroupAdmin, ModelAdmin):  # type: ignore[misc]
    def audit_detail(self, obj: Group) -> dict[str, Any]:
        return {"permissions": sorted(obj.permissions.values_list("codename", flat=True))}
