"""A comment on an issue or a pull request of GitHub. GitHub cannot tell a repeat."""

from collections.abc import Mapping
from typing import Any, ClassVar

from runs.notifications.channels.channel import Outcome
from runs.notifications.message import Message
from runs.notifications.places.place import judged, post_as, text_of

MARK = "<!-- wakeful -->"  # below each comment, so that a filter can leave it out


class GitHubComment:
    name: ClassVar[str] = "github-comment"
    can_tell_repeats: ClassVar[bool] = False

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        url = f"{to['api']}repos/{to['repository']}/issues/{to['number']}/comments"
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        return judged(post_as(to["connection"], url, {"body": f"{text_of(message)}\n\n{MARK}"}, headers))


PLACE = GitHubComment()
