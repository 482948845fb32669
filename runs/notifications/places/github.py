"""A comment on an issue or a pull request of GitHub. GitHub cannot tell a repeat."""

from collections.abc import Mapping
from typing import Any, ClassVar

from runs.network.posting import PostResponse
from runs.notifications.channels.channel import NotNow, Outcome
from runs.notifications.channels.webhook import LONGEST_PAUSE
from runs.notifications.message import Message
from runs.notifications.places.place import judged, post_as, text_of

MARK = "<!-- wakeful -->"  # below each comment, so that a filter can leave it out


class GitHubComment:
    name: ClassVar[str] = "github-comment"
    can_tell_repeats: ClassVar[bool] = False

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        url = f"{to['api']}repos/{to['repository']}/issues/{to['number']}/comments"
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        answer = post_as(to["connection"], url, {"body": f"{text_of(message)}\n\n{MARK}"}, headers)
        if isinstance(answer, PostResponse) and _is_pause(answer):
            return NotNow(why="GitHub asks for a pause", after=answer.after and min(answer.after, LONGEST_PAUSE))
        return judged(answer)


def _is_pause(answer: PostResponse) -> bool:
    """GitHub answers 403 to an account beyond one of its limits, and to one that may not write there."""
    return answer.status == 403 and (answer.after is not None or b"rate limit" in answer.begins.lower())


PLACE = GitHubComment()
