from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path, re_path
from django.views.decorators.cache import never_cache
from django.views.generic import RedirectView

from config.console.access.chat_accounts import chat_accounts
from config.console.access.password_again import password_again
from config.console.agents.overnight import overnight_page
from config.console.connections.callback import connection_callback
from config.console.dress import dress
from config.console.home.acts import act_on_home
from config.console.home.page import home_fragment
from config.console.lists.acts import choose_columns_of, remove_view_of, save_view_of
from config.console.notifications.decide import decide_in_inbox
from config.console.notifications.inbox import inbox
from config.console.operations.upcoming import coming
from config.console.search.page import find_page
from config.documentation.views import documentation
from config.health import probes
from config.health.metrics import metrics
from runs.api.approval_links import ApprovalLinkView
from triggers.sources.calendars.views import calendar_push
from triggers.sources.switches.views import ADDRESS as PING
from triggers.sources.switches.views import PingView
from triggers.sources.webhooks.views import HookView

# Here, and not at the start of every process: only those that serve pages need the console.
admin.autodiscover()
dress(admin.site)

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    # Browsers request it on pages that link no icon, such as errors and the API.
    path("favicon.ico", RedirectView.as_view(url=static("console/icon.svg"))),
    path("admin/chat-accounts/", admin.site.admin_view(chat_accounts), name="chat_accounts"),
    path("admin/coming/", admin.site.admin_view(coming), name="coming"),
    path("admin/connections/callback/", never_cache(connection_callback), name="connection_callback"),
    path("admin/find/", admin.site.admin_view(find_page), name="find"),
    path("admin/home/", admin.site.admin_view(home_fragment), name="home"),
    path("admin/home/<slug:verb>/", admin.site.admin_view(act_on_home), name="home_act"),
    path("admin/inbox/decide/", admin.site.admin_view(decide_in_inbox), name="inbox_decide"),
    path("admin/inbox/", admin.site.admin_view(inbox), name="inbox"),
    path("admin/lists/views/<int:pk>/remove/", admin.site.admin_view(remove_view_of), name="list_view_remove"),
    path("admin/lists/<slug:noun>/columns/", admin.site.admin_view(choose_columns_of), name="list_columns"),
    path("admin/lists/<slug:noun>/views/", admin.site.admin_view(save_view_of), name="list_views"),
    path("admin/overnight/", admin.site.admin_view(overnight_page), name="overnight"),
    path("admin/password-again/", admin.site.admin_view(password_again), name="password_again"),
    path("admin/", admin.site.urls),
    # With or without the last slash: a redirect would count as a failure with most senders.
    re_path(r"^hooks/(?P<slug>[-\w]+)/?$", HookView.as_view(), name="webhook"),
    path("push/calendars/", calendar_push, name="calendar_push"),
    re_path(PING, PingView.as_view(), name="ping"),
    path("api/", include("config.api")),
    path("approvals/<str:token>/", ApprovalLinkView.as_view(), name="approval"),
    path("docs/", documentation, name="docs"),
    path("docs/<slug:slug>/", documentation, name="docs_page"),
    path("health/live", probes.live),
    path("health/ready", probes.ready),
    path("metrics", metrics),
]
