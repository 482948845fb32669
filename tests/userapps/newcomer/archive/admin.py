from archive.models import Entry
from django.contrib import admin

admin.site.register(Entry)
