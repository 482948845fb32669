from django.contrib import admin
from django.contrib.auth.admin import UserAdmin

from office.models import Guest, Line, Member, Order


@admin.register(Member)
class MemberAdmin(UserAdmin):
    ordering = ("email",)
    list_display = ("email", "is_staff")
    list_filter = ("is_staff",)
    search_fields = ("email",)
    fieldsets = ((None, {"fields": ("email", "password")}), ("Permissions", {"fields": ("is_staff", "is_superuser")}))
    add_fieldsets = ((None, {"fields": ("email", "password1", "password2")}),)


@admin.register(Guest)
class GuestAdmin(admin.ModelAdmin):
    fields = ("email",)


class LineInline(admin.TabularInline):
    model = Line


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("customer", "total")
    inlines = (LineInline,)
