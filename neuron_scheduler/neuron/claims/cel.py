"""
The CEL expressions by which device classes and claims select devices.

Upstream: `k8s.io/dynamic-resource-allocation/cel` and cel-go. The API server has compiled each expression, so only the
evaluation is left. Errors are values, as in cel-go: `&&` and `||` ignore one beside an operand that decides. A part of
CEL that is not served gives a sentence instead of a selector, never a guess.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.quantity import QuantityError, nano
from neuron_scheduler.model.version import Version

Attribute = bool | int | str | Version
"""The value of a device's attribute."""

MOST_NESTED: Final = 50
"""Operands inside one another, more than people write; else Python's limit of calls would be reached."""
MOST_COMPILED: Final = 64
"""Selectors that are remembered; one takes up to 200 KiB."""


@attrs.frozen
class CelError:
    """Why an expression has no result for a device."""

    text: str


class _NotServedError(Exception):
    """The text is the part of CEL that is meant."""


class _AbortError(Exception):
    """An error that `&&` and `||` do not ignore."""


# Values are bool, int, str, Version, tuple (a list), dict (the device), CelError, and these three.


@attrs.frozen(order=True)
class _Quantity:
    nano: int


@attrs.frozen
class _Optional:
    """A value that may be missing: then it is None."""

    value: object


@attrs.frozen(eq=False)
class _Fields:
    """
    The map `device.attributes` or `device.capacity`, or what it has in a domain.

    Attributes:
        kind: of the fields, in a word.
        values: of all domains, by qualified name.
        domain: None for the map of all domains, in which each name has a domain, maybe an empty one.
    """

    kind: str
    values: Mapping[str, Attribute]
    domain: str | None = None

    def find(self, key: object) -> object:
        if self.domain is None:
            return _Fields(self.kind, self.values, key if isinstance(key, str) else "")
        value = self.values.get(f"{self.domain}/{key}") if isinstance(key, str) else None
        return _quantity(value) if self.kind == "capacity" else value

    def contains(self, key: object) -> bool:
        if self.domain is None:
            return isinstance(key, str) and any(name.startswith(f"{key}/") for name in self.values)
        return self.find(key) is not None


_MISSING: Final = _Optional(None)
_KINDS: Final = {bool: "a bool", int: "an int", str: "a string", tuple: "a list", Version: "a version"}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), f"a value of type {type(value).__name__.strip('_').lower()}")


def _misfit(name: str, *values: object) -> CelError:
    return CelError(f"{name} does not take {' and '.join(map(_kind, values))}")


# What operators and functions do with values; None if the types do not fit, or if nothing is found.


def _quantity(text: object) -> _Quantity | CelError | None:
    try:
        return _Quantity(nano(text)) if isinstance(text, str) else None
    except QuantityError as error:
        return CelError(str(error))


def _version(text: object, is_tolerant: object = False) -> Version | CelError | None:
    if not isinstance(text, str) or not isinstance(is_tolerant, bool):
        return None
    version = Version.parse_tolerantly(text) if is_tolerant else Version.parse(text)
    return version or CelError(f"{text[:64]!r} is not a semantic version")


def _find(whole: object, key: object) -> object:
    if isinstance(whole, tuple) and type(key) is int:
        return whole[key] if 0 <= key < len(whole) else None
    if isinstance(whole, _Fields):
        return whole.find(key)
    return whole.get(key) if isinstance(whole, dict) else None


def _field(whole: object, key: object) -> object:
    if isinstance(whole, _Optional):
        return _optional_field(whole, key)
    found = _find(whole, key)
    if found is None and isinstance(whole, _Fields):
        return CelError(f"the device has no {whole.kind} {whole.domain}/{key}")
    return CelError(f"a value has no field {key}") if found is None else found


def _optional_field(whole: object, key: object) -> object:
    found = _find(whole.value if isinstance(whole, _Optional) else whole, key)
    return _MISSING if found is None else found if isinstance(found, CelError) else _Optional(found)


def _is_equal(left: object, right: object) -> bool | None:
    if type(left) is not type(right):
        return None if isinstance(left, Version | _Quantity) else False
    if isinstance(left, _Fields):
        raise _AbortError("a comparison of two maps is not served")
    if isinstance(left, tuple) and isinstance(right, tuple):  # elements that cannot be compared count as equal
        return len(left) == len(right) and False not in map(_is_equal, left, right)
    if isinstance(left, _Optional) and isinstance(right, _Optional) and _MISSING not in (left, right):
        return _is_equal(left.value, right.value)
    return left == right


def _is_in(value: object, whole: object) -> bool | None:
    if isinstance(whole, _Fields):
        return whole.contains(value)
    return any(_is_equal(value, each) for each in whole) if isinstance(whole, tuple) else None


def _is_in_literals(value: object, literals: object) -> bool | None:
    if isinstance(value, Version):  # cel-go makes a map of the literals, and in Go a version cannot be a key
        raise _AbortError("in does not take a version and a list of literals")
    return _is_in(value, literals)


def _of(*types: type, does: Callable[..., object]) -> Callable[[object, object], object]:
    """Return a function of two values that have one and the same of the types."""
    return lambda left, right: does(left, right) if type(left) is type(right) and type(left) in types else None


_FUNCTIONS: Final[Mapping[tuple[str, int], Callable[..., object]]] = {
    ("!", 1): lambda value: not value if isinstance(value, bool) else None,
    ("==", 2): _is_equal,
    ("!=", 2): lambda left, right: not _is_equal(left, right),
    ("<", 2): _of(bool, int, str, does=operator.lt),
    ("<=", 2): _of(bool, int, str, does=operator.le),
    (">", 2): _of(bool, int, str, does=operator.gt),
    (">=", 2): _of(bool, int, str, does=operator.ge),
    ("in", 2): _is_in,
    (".", 2): _field,
    (".?", 2): _optional_field,
    ("has", 2): lambda whole, key: _optional_field(whole, key) != _MISSING,
    ("hasValue", 1): lambda value: value != _MISSING if isinstance(value, _Optional) else None,
    ("contains", 2): _of(str, does=operator.contains),
    ("endsWith", 2): _of(str, does=str.endswith),
    ("startsWith", 2): _of(str, does=str.startswith),
    ("quantity", 1): _quantity,
    ("semver", 1): _version,
    ("semver", 2): _version,
    ("compareTo", 2): _of(Version, _Quantity, does=lambda left, right: (left > right) - (left < right)),
    ("isGreaterThan", 2): _of(Version, _Quantity, does=operator.gt),
    ("isLessThan", 2): _of(Version, _Quantity, does=operator.lt),
}
"""By name and number of operands; a method's first operand is what it is called on."""
_METHODS: Final = {name for name, _ in _FUNCTIONS if name.isalpha()} | {"orValue"}
_OF_DEVICE: Final = {"driver", "attributes", "capacity"}


@attrs.frozen
class _Part:
    """
    A part of an expression.

    Attributes:
        name: an operator or a function; "device", "literal" or "list".
        function: what it does with the values of its operands, if that is all; the default makes a list.
        literal: its value if it is a literal, or a list of literals.
        depth: how many operands are inside one another.
    """

    name: str
    operands: Sequence["_Part"] = ()
    function: Callable[..., object] = lambda *values: values
    literal: object = None
    depth: int = attrs.field(init=False)

    @depth.default
    def _depth_of(self) -> int:
        depth = max((1 + operand.depth for operand in self.operands), default=0)
        if depth > MOST_NESTED:
            raise _NotServedError(f"nesting of more than {MOST_NESTED} operands")
        return depth

    def value(self, device: Mapping[str, object]) -> object:
        """Return the value for a device, or the error."""
        match self.name:
            case "literal":
                return self.literal
            case "device":
                return device
            case "&&" | "||":
                return self._decide(device)
            case "orValue":
                value = self.operands[0].value(device)
                if not isinstance(value, _Optional):
                    return value if isinstance(value, CelError) else _misfit("orValue", value)
                return self.operands[1].value(device) if value == _MISSING else value.value
        values, error = [], None
        for operand in self.operands:
            value = operand.value(device)
            error = error or (value if isinstance(value, CelError) else None)
            if error and self.name == "list":
                break
            values.append(value)
        result = error or self.function(*values)
        return _misfit(self.name, *values) if result is None else result

    def _decide(self, device: Mapping[str, object]) -> object:
        error = None
        for operand in self.operands:
            value = operand.value(device)
            if value is (self.name == "||"):
                return value
            if not isinstance(value, bool):
                error = error or (value if isinstance(value, CelError) else _misfit(self.name, value))
        return error or self.name == "&&"


def _literal_of(value: object) -> _Part:
    return _Part("literal", literal=value)


def _call(name: str, *operands: _Part) -> _Part:
    """Return the part that applies an operator, a function or a method."""
    if (name, len(operands)) == ("orValue", 2):
        return _Part(name, operands)
    if (name, len(operands)) not in _FUNCTIONS:
        raise _NotServedError(f"{name[:64]} with {len(operands)} operands")
    literals = operands[-1].literal
    if name == "in" and literals == ():
        return _literal_of(value=False)
    if name == "in" and isinstance(literals, tuple) and not isinstance(literals[0], tuple):
        return _Part(name, operands, _is_in_literals)
    return _Part(name, operands, _FUNCTIONS[name, len(operands)])


_RELATION: Final = 3
_LEVELS: Final = {"||": 1, "&&": 2} | dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), _RELATION)
_WORD: Final = re.compile(
    r"""(?:\s|//[^\n]*)*(?:
    (?P<raw>[rR](?:'{3}[\s\S]*?'{3}|"{3}[\s\S]*?"{3}|'[^'\n]*'|"[^"\n]*"))|
    (?P<text>'{3}(?:\\.|[^\\])*?'{3}|"{3}(?:\\.|[^\\])*?"{3}|'(?:\\.|[^\\'\n])*'|"(?:\\.|[^\\"\n])*")|
    (?P<number>[0-9]\w*(?:\.[0-9]\w*)?)|
    (?P<name>[A-Za-z_]\w*)|
    (?P<sign>&&|\|\||[=!<>]=|\.\?|\S)|
    (?P<end>\Z))""",
    re.VERBOSE | re.ASCII,
)
_ESCAPES: Final = dict(zip("abfnrtv\\'\"`?", "\a\b\f\n\r\t\v\\'\"`?", strict=True))


def _text_of(word: str, *, is_raw: bool) -> str:
    quotes = 3 if word[:3] in ("'''", '"""') else 1
    text = word[quotes:-quotes].replace("\r\n", "\n").replace("\r", "\n")
    try:
        return text if is_raw else re.sub(r"\\(.)", lambda escape: _ESCAPES[escape[1]], text)
    except KeyError as escape:
        raise _NotServedError(f"'\\{escape.args[0]}' in a string") from None


@attrs.define(eq=False)
class _Parser:
    """Makes parts of the words of an expression, by cel-go's `parser/gen/CEL.g4`; raises `_NotServedError`."""

    _words: Sequence[tuple[str, str]]
    _position: int = 0
    _nested: int = 0

    def parse(self) -> _Part:
        part = self._operation(1)
        self._expect("")
        return part

    def _take(self) -> tuple[str, str]:
        self._position += 1
        return self._words[self._position - 1]

    def _accept(self, word: str) -> bool:
        is_next = self._words[self._position][1] == word
        self._position += is_next
        return is_next

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._refusal(self._position)

    def _refusal(self, position: int) -> _NotServedError:
        """Return the error for a word, with the names that belong to it."""
        words = "".join(word for _, word in self._words[position : position + 3])
        names = re.match(r"\w+(\.\w+)?", words)
        word = names[0] if names else self._words[position][1]
        return _NotServedError(repr(word[:64]) if word else "an incomplete expression")

    def _operation(self, lowest: int) -> _Part:
        """Parse operands, and the operators of at least the lowest level between them."""
        left = self._operand()
        while (level := _LEVELS.get(sign := self._words[self._position][1], 0)) >= lowest:
            if level == _RELATION:
                self._position += 1
                left = _call(sign, left, self._operand())
                continue
            operands = [left]
            while self._accept(sign):
                operands.append(self._operation(level + 1))
            left = _Part(sign, operands)
        return left

    def _operand(self) -> _Part:
        """Parse what stands between operators: negations, a first part, and its members."""
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise _NotServedError(f"nesting of more than {MOST_NESTED} operands")
        is_negated = False
        while self._accept("!"):
            is_negated = not is_negated
        part = self._first()
        while (sign := self._words[self._position][1]) in (".", ".?", "["):
            self._position += 1
            part = self._member(part, sign)
        self._nested -= 1
        return _call("!", part) if is_negated else part

    def _member(self, part: _Part, sign: str) -> _Part:
        if sign == "[" and part.name != "device":
            sign, key = ".?" if self._accept("?") else ".", self._operation(1)
            self._expect("]")
            return _call(sign, part, key)
        kind, name = self._take()
        is_call = (kind, sign) == ("name", ".") and self._words[self._position][1] == "("
        served = _METHODS if is_call else _OF_DEVICE if part.name == "device" else (name,)
        if kind != "name" or name not in served:
            raise self._refusal(self._position - 1)
        return _call(name, part, *self._operands("(", ")")) if is_call else _call(sign, part, _literal_of(name))

    def _operands(self, start: str, end: str) -> Sequence[_Part]:
        self._expect(start)
        operands = []
        while not self._accept(end):
            operands.append(self._operation(1))
            if not self._accept(","):
                self._expect(end)
                break
        return operands

    def _first(self) -> _Part:
        """Parse a part without its members."""
        kind, word = self._take()
        match kind, word:
            case "name", "device":
                return _Part("device")
            case "name", ("has" | "semver" | "quantity"):
                operands = self._operands("(", ")")
                return _call(word, *(operands[0].operands if word == "has" and operands else operands))
            case "sign", "(":
                part = self._operation(1)
                self._expect(")")
                return part
            case "sign", "[":
                self._position -= 1
                operands = self._operands("[", "]")
                if all(operand.literal is not None for operand in operands):
                    return _literal_of(tuple(operand.literal for operand in operands))
                return _Part("list", operands)
            case _:
                return self._literal(kind, word)

    def _literal(self, kind: str, word: str) -> _Part:
        if kind in ("text", "raw"):
            return _literal_of(_text_of(word.lstrip("rR"), is_raw=kind == "raw"))
        if word in ("true", "false"):
            return _literal_of(word == "true")
        minus = word if word == "-" else ""
        digits = self._take()[1] if minus else word
        if re.fullmatch("0x[0-9a-fA-F]{1,16}|[0-9]{1,19}", digits):
            return _literal_of(int(minus + digits, 16 if "x" in digits else 10))
        raise self._refusal(self._position - 1)


@attrs.frozen
class DeviceSelector:
    """A compiled expression."""

    _part: _Part

    def matches(self, driver: str, attributes: Mapping[str, Attribute], capacity: Mapping[str, str]) -> bool | CelError:
        """
        Return whether a device matches, or CEL's runtime error.

        Args:
            driver: the driver that publishes the device.
            attributes: values by qualified name, such as `neuron.aws.com/deviceId`.
            capacity: quantities by qualified name.
        """
        fields = {"attributes": _Fields("attribute", attributes), "capacity": _Fields("capacity", capacity)}
        try:
            result = self._part.value({"driver": driver, **fields})
        except _AbortError as error:
            return CelError(str(error))
        while isinstance(result, _Optional) and result != _MISSING:
            result = result.value
        return result if isinstance(result, bool | CelError) else CelError(f"the result is {_kind(result)}, not a bool")


@memoise(MOST_COMPILED)
def compile_selector(expression: str) -> DeviceSelector | str:
    """Return the selector, or the sentence that says which part of CEL is not served."""
    words = [(str(each.lastgroup), each[str(each.lastgroup)]) for each in _WORD.finditer(expression)]
    try:
        return DeviceSelector(_Parser(words).parse())
    except _NotServedError as error:
        return f"{error} is not served in the CEL expression of a selector"
