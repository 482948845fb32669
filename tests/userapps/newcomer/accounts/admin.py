from accounts.models import User
from django.contrib import admin


@admin.register(User)
class UserAdmin(admin.ModelAdmin):
    list_display = ["email", "is_staff"]
    search_fields = ["email"]
    exclude = ["password"]
