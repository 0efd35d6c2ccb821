"""
Completion for shells: the candidates for the word that is being written, from the parsers themselves.

`neuron-scheduler completion SHELL` prints a script that calls the program for each word, so the script never becomes
stale. The lines are those of kubectl's plugins (spf13/cobra, `__complete`): a candidate with its description after a
tab, and at the end a directive. Does not fail: a person who is writing gets no candidates in place of an error.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.terminal import write_out

FILES, NO_FILES = ":0", ":4"
"""Cobra's directives: the shell may offer files, or not."""
SHELLS: Final = ("bash", "zsh", "fish")
COMPLETE: Final = "__complete"
"""The first word of the call by which a shell asks for candidates."""

_BASH: Final = """\
_neuron_scheduler() {
    local line lines
    mapfile -t lines < <(neuron-scheduler __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=()
    for line in "${lines[@]}"; do
        case "$line" in
            :0) compopt -o default ;;
            :*) ;;
            *) COMPREPLY+=("${line%%$'\\t'*}") ;;
        esac
    done
}
complete -F _neuron_scheduler neuron-scheduler
"""
_ZSH: Final = """\
#compdef neuron-scheduler
_neuron_scheduler() {
    local line name
    local -a candidates
    for line in "${(@f)$(neuron-scheduler __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case "$line" in
            :0) _files ;;
            :*) ;;
            *) name="${line%%$'\\t'*}"; candidates+=("${name//:/\\\\:}:${line#*$'\\t'}") ;;
        esac
    done
    (( $#candidates )) && _describe 'neuron-scheduler' candidates
}
if [[ "${funcstack[1]}" = _neuron_scheduler ]]; then
    _neuron_scheduler "$@"
else
    compdef _neuron_scheduler neuron-scheduler
fi
"""
_FISH: Final = """\
function __neuron_scheduler
    set -l lines (neuron-scheduler __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
    if test "$lines[-1]" = ":0"
        __fish_complete_path (commandline -ct)
    else
        printf '%s\\n' $lines[1..-2]
    end
end
complete -c neuron-scheduler -f -a '(__neuron_scheduler)'
"""
_SCRIPTS: Final = dict(zip(SHELLS, (_BASH, _ZSH, _FISH), strict=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell."""
    parser.description = (
        "Print a script for a shell, after which it completes commands, flags and names of pods. For bash:"
        " source <(neuron-scheduler completion bash). The plugin kubectl neuron needs no script: kubectl's own"
        " completion asks kubectl_complete-neuron."
    )
    parser.add_argument("shell", choices=SHELLS, help=", ".join(SHELLS))


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    write_out(_SCRIPTS[arguments.shell])
    return 0


@attrs.frozen
class Candidate:
    """A word that may be meant, and what it is."""

    word: str
    about: str = ""


@attrs.frozen
class Candidates:
    """The words that may be meant, and whether a file may be."""

    words: tuple[Candidate, ...] = ()
    files: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the lines that kubectl and the scripts read."""
        for candidate in self.words:
            about = printable(" ".join(candidate.about.split()))
            yield f"{printable(candidate.word)}\t{about}" if about else printable(candidate.word)
        yield FILES if self.files else NO_FILES


def candidates(words: Sequence[str], commands: Mapping[str, tuple[str, argparse.ArgumentParser | None]]) -> Candidates:
    """
    Return the candidates for the last word.

    Args:
        words: after the program's name, up to the one that is being written, which may be empty.
        commands: by name what each is for, and its parser, if it is the first word.
    """
    first = words[0] if words else ""
    if len(words) <= 1:
        return Candidates(
            tuple(Candidate(name, about) for name, (about, _) in commands.items() if name.startswith(first))
        )
    parser = commands.get(first, ("", None))[1]
    if parser is None:
        return Candidates()
    options = {option: action for action in parser._actions for option in action.option_strings}  # noqa: SLF001 - there is no public list
    current, before = words[-1], words[-2]
    flag, equals, value = current.partition("=")
    if equals and flag in options:
        given = _values(options[flag], value)
        return attrs.evolve(given, words=tuple(attrs.evolve(c, word=f"{flag}={c.word}") for c in given.words))
    if before in options and options[before].nargs is None:
        return _values(options[before], current)
    if current.startswith("-"):
        return Candidates(
            tuple(
                Candidate(option, _about(action))
                for option, action in options.items()
                if option.startswith(current) and action.help != argparse.SUPPRESS
            )
        )
    return _of_argument(parser, words[1:], current)


def _values(action: argparse.Action, begun: str) -> Candidates:
    """Return the candidates for the value of a flag."""
    if action.choices is not None:
        return Candidates(tuple(Candidate(str(choice)) for choice in action.choices if str(choice).startswith(begun)))
    return Candidates(files=_takes_file(action))


def _takes_file(action: argparse.Action) -> bool:
    return "FILE" in str(action.metavar or "")


def _of_argument(parser: argparse.ArgumentParser, words: Sequence[str], current: str) -> Candidates:
    """Return the candidates for an argument without a flag."""
    action = next((action for action in parser._actions if not action.option_strings), None)  # noqa: SLF001 - as above
    if action is None:
        return Candidates()
    if action.metavar == "POD":
        from neuron_scheduler.commands.pod_candidates import pod_names

        names = pod_names(parser, [*words[:-1]])
        return Candidates(tuple(Candidate(name) for name in names if name.startswith(current)))
    return _values(action, current)


def _about(action: argparse.Action) -> str:
    """Return the beginning of a flag's help."""
    return (action.help or "").partition("; ")[0].partition(" (default")[0]
