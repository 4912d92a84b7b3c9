"""`completion SHELL`: a script with which a shell completes carrycast's commands and options by the tab key."""

import argparse
from collections.abc import Mapping

from carrycast.cli.options import say

BASH = """# carrycast for bash: eval "$(carrycast completion bash)"
_carrycast() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="" one words
    for one in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$one" in -*) ;; *) command="$one"; break ;; esac
    done
    case "$before" in
        --protocol|--protocols) COMPREPLY=($(compgen -W "{protocols}" -- "$word")); return ;;
    esac
    case "$command" in
{cases}
        *) words="{commands} {options}" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [[ -n "$command" && "$word" != -* ]]; then COMPREPLY+=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _carrycast carrycast
"""

ZSH = """# carrycast for zsh: eval "$(carrycast completion zsh)"
autoload -Uz compinit bashcompinit && compinit -u && bashcompinit
"""

SHELLS = ("bash", "zsh", "fish")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    completion = commands.add_parser(
        "completion",
        help="let a shell complete commands and options",
        description='Print a script for a shell, as in: eval "$(carrycast completion bash)"',
    )
    completion.add_argument("shell", choices=SHELLS)
    completion.set_defaults(command=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    from carrycast.cli import parser
    from carrycast.core.plugins import plugin_names

    top, protocols = parser(), plugin_names("protocols")
    words = {name: [*below.kinds, *below.options] for name, below in top.kinds.items()}
    if arguments.shell == "fish":
        say(_fish(words, top.options, protocols))
    else:
        bash = _bash(words, top.options, protocols)
        say(bash if arguments.shell == "bash" else ZSH + bash)
    return 0


def _bash(words: Mapping[str, list[str]], options: list[str], protocols: list[str]) -> str:
    cases = "\n".join(f'        {name}) words="{" ".join(own)}" ;;' for name, own in words.items())
    names = {"commands": " ".join(words), "options": " ".join(options), "protocols": " ".join(protocols)}
    return BASH.format(cases=cases, **names).rstrip()


def _fish(words: Mapping[str, list[str]], options: list[str], protocols: list[str]) -> str:
    lines = ["# carrycast for fish: carrycast completion fish | source"]
    lines.append(f"complete -c carrycast -n __fish_use_subcommand -a '{' '.join([*words, *options])}'")
    for name, own in words.items():
        lines.append(f"complete -c carrycast -n '__fish_seen_subcommand_from {name}' -a '{' '.join(own)}'")
    for option in ("protocol", "protocols"):
        lines.append(f"complete -c carrycast -l {option} -x -a '{' '.join(protocols)}'")
    return "\n".join(lines)
