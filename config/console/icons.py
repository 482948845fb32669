"""The font of the icons: a part of Material Symbols (Apache License 2.0) with the icons in `icons.txt`, or all of them.

`tests/config/console/test_icons.py` holds that `icons.txt` has every icon of the console and of unfold, and how the font is made.
"""

from django.contrib import admin
from django.http import HttpRequest
from django.templatetags.static import static

OURS = __name__.removesuffix("icons")


def icons(request: HttpRequest) -> str:
    """The style sheet. Admin pages of the team's own apps may name any icon."""
    is_ours = all(type(panel).__module__.startswith(OURS) for panel in admin.site._registry.values())
    return static("console/icons.css" if is_ours else "console/all_icons.css")
