from django.contrib import admin
from notes.models import Note


@admin.register(Note)
class NoteAdmin(admin.ModelAdmin):
    list_display = ["text", "order", "author"]
    list_select_related = ["order", "author"]
    autocomplete_fields = ["order"]
