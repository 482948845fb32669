"""Completion of commands, their actions, options and choices in a shell.

A script has every word in it: a completion starts no process, as one that loads Django takes most of a second. So it knows neither
triggers nor runs, and is written again after an upgrade, or for other apps.
"""

import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.core.management import get_commands, load_command_class

PROGRAMS = ("wakeful", "manage.py")
WORD = re.compile(r"[\w.:+@/-]+")  # what needs no quotes in any shell

BASH = """# Completion of {programs} in bash.
_wakeful() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} at=${{COMP_WORDS[1]}} words= i
    for ((i = 2; i < COMP_CWORD; i++)); do
        case "$at ${{COMP_WORDS[i]}}" in
            {actions}) at="$at ${{COMP_WORDS[i]}}" ;;
        esac
    done
    if ((COMP_CWORD == 1)); then
        words='{commands}'
    else
        case "$at $before" in
{values}
            *) case "$at" in
{words}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _wakeful {programs}
"""
ZSH = """# Completion of {programs} in zsh.
autoload -U +X compinit && compinit
autoload -U +X bashcompinit && bashcompinit
"""


@dataclass
class Place:
    """Where a command line may stand: behind a command, or behind an action of it."""

    path: str
    words: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)  # what may follow an option
    actions: list[str] = field(default_factory=list)


def bash(places: Sequence[Place]) -> str:
    actions = [f"'{place.path} {action}'" for place in places for action in place.actions]
    values = [
        f"            '{place.path} {option}') words='{' '.join(choices)}' ;;"
        for place in places
        for option, choices in place.values.items()
    ]
    words = [f"                '{place.path}') words='{' '.join(place.words)}' ;;" for place in places]
    return BASH.format(
        programs=" ".join(PROGRAMS),
        commands=" ".join(sorted(get_commands())),
        actions=" | ".join(actions),
        values="\n".join(values),
        words="\n".join(words),
    )


def zsh(places: Sequence[Place]) -> str:
    return ZSH.format(programs=" ".join(PROGRAMS)) + bash(places)


def fish(places: Sequence[Place]) -> str:
    return "\n".join(f"complete -c {program} {rest}" for program in PROGRAMS for rest in _of_fish(places)) + "\n"


def _of_fish(places: Sequence[Place]) -> Iterator[str]:
    yield f"-n __fish_use_subcommand -f -a '{' '.join(sorted(get_commands()))}'"
    for place in places:
        here = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in place.path.split())
        for word in place.words:
            if not word.startswith("--"):
                yield f"-n '{here}' -f -a {word}"
            elif choices := place.values.get(word):
                yield f"-n '{here}' -l {word[2:]} -x -a '{' '.join(choices)}'"
            else:
                yield f"-n '{here}' -l {word[2:]}"


def places_of_commands() -> Iterator[Place]:
    for name, app in sorted(get_commands().items()):
        try:
            command = load_command_class(app, name) if isinstance(app, str) else app
            parser = command.create_parser(PROGRAMS[0], name)
        except Exception:  # noqa: BLE001, S112  (a command of another app: it is completed by its name alone)
            continue
        yield from _of_parser(name, parser)


def _of_parser(path: str, parser: ArgumentParser) -> Iterator[Place]:
    place, below = Place(path), dict[str, ArgumentParser]()
    for action in parser._actions:
        options = [option for option in action.option_strings if option.startswith("--")]
        choices = [str(choice) for choice in action.choices or () if WORD.fullmatch(str(choice))]
        place.words += options or choices
        if isinstance(action, _SubParsersAction):
            below |= action.choices
        elif choices:
            place.values |= dict.fromkeys(options, choices)
    place.actions = list(below)
    yield place
    for name, parser_below in below.items():
        yield from _of_parser(f"{path} {name}", parser_below)


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
