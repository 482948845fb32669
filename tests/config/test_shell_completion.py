"""A real bash completes command lines by the script of `completion bash`."""

import subprocess
from functools import cache

import pytest

from config.management.shell_completion import SHELLS, Place, places_of_commands

ASK = """
for line in "$@"; do
    read -ra COMP_WORDS <<< "$line"
    [[ $line == *' ' ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _wakeful
    echo "${COMPREPLY[*]}"
done
complete -p manage.py
"""
LINES = [
    "wakeful import_f",
    "wakeful ",
    "manage.py emit --s",
    "wakeful schedules ",
    "wakeful schedules why --a",
    "wakeful schedules --json why --t",
    "wakeful runs --status can",
    "wakeful import_from crontab --sy",
    "wakeful nosuch --",
    "wakeful completion ",
]


@cache
def places() -> list[Place]:
    return list(places_of_commands())


def script(shell: str) -> str:
    return SHELLS[shell](places())


@cache
def completed() -> dict[str, list[str]]:
    done = subprocess.run(
        ["bash", "--norc", "-u", "-c", f"{script('bash')}\n{ASK}", "bash", *LINES],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    *answers, registered = done.stdout.splitlines()
    assert registered == "complete -o default -F _wakeful manage.py"
    return {line: answer.split() for line, answer in zip(LINES, answers, strict=True)}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("wakeful import_f", ["import_from"]),
        ("manage.py emit --s", ["--settings", "--skip-checks", "--source", "--subject"]),
        ("wakeful schedules why --a", ["--at"]),
        ("wakeful schedules --json why --t", ["--tz"]),
        ("wakeful runs --status can", ["cancelled"]),
        ("wakeful import_from crontab --sy", ["--system"]),
        ("wakeful nosuch --", []),
        ("wakeful completion ", ["bash", "fish", "zsh"]),
    ],
)
def test_bash_completes(line: str, words: list[str]) -> None:
    found = completed()[line]

    assert sorted(word for word in found if line[-1] != " " or word[0] != "-") == words


def test_commands_and_actions_come_first() -> None:
    assert {"emit", "doctor", "migrate"} <= set(completed()["wakeful "])
    assert {"list", "why", "pause", "resume", "next"} <= set(completed()["wakeful schedules "])


def test_zsh_takes_the_functions_of_bash_and_fish_has_its_own_words() -> None:
    assert script("bash") in script("zsh") and "bashcompinit" in script("zsh")
    fish = script("fish").splitlines()
    assert "complete -c wakeful -n '__fish_seen_subcommand_from emit' -l subject" in fish
    assert all(line.startswith(("complete -c wakeful -n ", "complete -c manage.py -n ")) for line in fish)
