from django.contrib import admin
from orders.models import Line, Order


class LineInline(admin.TabularInline):
    model = Line
    extra = 1


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["id", "total", "checked"]
    list_filter = ["checked"]
    search_fields = ["total"]
    inlines = [LineInline]
    actions = ["mark_checked"]

    @admin.action(description="Check these orders")
    def mark_checked(self, request, orders):
        orders.update(checked=True)
