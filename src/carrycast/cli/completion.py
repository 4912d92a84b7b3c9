"""`completion`: a script that makes a shell complete commands and options."""

import argparse
from collections.abc import Callable, Mapping
from functools import partial

from carrycast.cli.options import Commands, add_command, print_line

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


Words = Callable[[], tuple[Mapping[str, list[str]], list[str]]]
"""The words that may follow each command, and the options of all commands."""


def add_commands(commands: Commands, words_of: Words) -> None:
    """Declare `completion`."""
    completion = add_command(
        commands,
        "completion",
        "Print a script for completion in a shell.",
        'As in: eval "$(carrycast completion bash)"',
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")
    completion.set_defaults(command=partial(_completion, words_of))


def _completion(words_of: Words, arguments: argparse.Namespace) -> int:
    from carrycast.core.plugins import plugin_names

    words, options = words_of()
    protocols = plugin_names("protocols")
    if arguments.shell == "fish":
        print_line(_fish_script(words, options, protocols))
    else:
        bash = _bash_script(words, options, protocols)
        print_line(bash if arguments.shell == "bash" else ZSH + bash)
    return 0


def _bash_script(words: Mapping[str, list[str]], options: list[str], protocols: list[str]) -> str:
    cases = "\n".join(f'        {name}) words="{" ".join(own)}" ;;' for name, own in words.items())
    names = {"commands": " ".join(words), "options": " ".join(options), "protocols": " ".join(protocols)}
    return BASH.format(cases=cases, **names).rstrip()


def _fish_script(words: Mapping[str, list[str]], options: list[str], protocols: list[str]) -> str:
    lines = ["# carrycast for fish: carrycast completion fish | source"]
    lines.append(f"complete -c carrycast -n __fish_use_subcommand -a '{' '.join([*words, *options])}'")
    for name, own in words.items():
        lines.append(f"complete -c carrycast -n '__fish_seen_subcommand_from {name}' -a '{' '.join(own)}'")
    for option in ("protocol", "protocols"):
        lines.append(f"complete -c carrycast -l {option} -x -a '{' '.join(protocols)}'")
    return "\n".join(lines)
