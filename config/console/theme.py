"""UNFOLD: names, colours, styles and scripts."""

from typing import Any

from django.templatetags.static import static

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Wakeful",
    "SITE_HEADER": "Wakeful",
    "SITE_SUBHEADER": "config.console.parts.browser_zone.times_in",
    "SITE_SYMBOL": "wb_twilight",
    "SITE_URL": None,
    "SHOW_HISTORY": False,  # the audit log is the history
    "LOGIN": {"form": "config.console.access.login.LoginForm"},
    "SHOW_VIEW_ON_SITE": False,
    "BORDER_RADIUS": "6px",
    "DASHBOARD_CALLBACK": "config.console.home.page.dashboard",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("console/icon.svg")}],
    "STYLES": ["config.console.icons.icons", lambda request: static("console/console.css")],
    "SCRIPTS": [
        lambda request: static("console/moments.js"),
        lambda request: static("console/regions.js"),
        lambda request: static("console/header.js"),
    ],
    "COLORS": {
        "primary": {
            "50": "oklch(97% .02 230)",
            "100": "oklch(94% .04 230)",
            "200": "oklch(88% .07 230)",
            "300": "oklch(80% .1 230)",
            "400": "oklch(71% .13 232)",
            "500": "oklch(62% .14 235)",
            "600": "oklch(54% .13 238)",
            "700": "oklch(47% .11 240)",
            "800": "oklch(40% .09 242)",
            "900": "oklch(35% .07 244)",
            "950": "oklch(27% .06 246)",
        }
    },
    "SIDEBAR": {"show_search": False, "navigation": "config.console.navigation.navigation"},
}
