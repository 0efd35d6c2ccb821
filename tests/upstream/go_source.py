"""
What the text of a Go file says, as far as it can be read without a Go parser.

Enough for upstream's sources, which gofmt has formatted. Refuses to evaluate anything: a value that is computed is
returned as it is written.
"""

import re
from collections.abc import Iterator
from typing import Final

_TOKENS: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|`[^`]*`|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TEXT: Final = re.compile(r'"((?:\\.|[^"\\\n])*)"')
_LOGGED: Final = re.compile(
    r"\b(?:klog|logger|lh)\b[\w.]*(?:\([^()]*(?:\([^()]*\))?[^()]*\)[\w.]*)*\.(?:Info|Error)S?\("
)
_IMPORTS: Final = re.compile(r"^import (?:\(.*?^\)|\"[^\n]*)", re.DOTALL | re.MULTILINE)


def code(text: str) -> str:
    """Return a file without its comments and its imports."""
    kept = _TOKENS.sub(lambda token: " " if token[0][:2] in ("//", "/*") else token[0], text)
    return _IMPORTS.sub("", kept)


def squeezed(text: str) -> str:
    """Return code with one space where there is any number of them, so that only what it does counts."""
    return " ".join(text.split())


def texts(text: str) -> list[str]:
    """Return the string literals in some code, in its order."""
    return [found[1] for found in _TEXT.finditer(text)]


def messages(text: str) -> set[str]:
    """Return the texts with more than one word that some code may tell its caller: all but what it logs."""
    while logged := _LOGGED.search(text):
        text = text[: logged.start()] + text[_closing(text, logged.end() - 1) :]
    return {literal for literal in texts(text) if " " in literal.strip()}


def functions(text: str, name: str) -> Iterator[str]:
    """Yield the bodies of the functions and methods with that name."""
    for head in re.finditer(rf"^func (?:\([^)]*\) )?{name}\(", text, re.MULTILINE):
        ends = re.search(r"^}$", text[head.end() :], re.MULTILINE)
        yield text[head.end() : head.end() + ends.start()] if ends else ""


def block(text: str, opening: str) -> str:
    """Return what stands between the bracket that ends `opening` and the one that closes it; empty without it."""
    start = text.find(opening)
    if start < 0:
        return ""
    start += len(opening)
    return text[start : _closing(text, start - 1) - 1]


def _closing(text: str, opening: int) -> int:
    """Return the place behind the bracket that closes the one at `opening`."""
    depth, place = 0, opening
    brackets = re.compile(r'"(?:\\.|[^"\\\n])*"|`[^`]*`|\'(?:\\.|[^\'\\\n])*\'|[({\[\])}]')
    for found in brackets.finditer(text, opening):
        depth += (found[0] in "({[") - (found[0] in ")}]")
        place = found.end()
        if depth == 0:
            break
    return place
