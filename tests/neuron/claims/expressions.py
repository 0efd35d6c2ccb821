"""
Random CEL expressions and devices, in words that meet: few names, few values, and each value in many forms.

Attributes have no types in CEL, so most of what is generated compiles, and many parts have a runtime error.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

DRIVERS: Final = ("neuron.aws.com", "dra.net", "")
DOMAINS: Final = ("neuron.aws.com", "resource.aws.com", "dra.net", "missing.example.com")
NAMES: Final = ("id", "kind", "version", "flag", "in_")
MISSING: Final = "missing"
STRINGS: Final = ("", "a", "ab", "1.0.0", "trn2.48xlarge", "neuron.aws.com", "id", "kind", "é", 'a"b', "a\\b", "\n")
NUMBERS: Final = (0, 1, 2, 15, -1, 16, 1 << 62, -(1 << 63))
VERSIONS: Final = (
    "1.0.0",
    "1.0.0+a",
    "1.2.3",
    "1.10.0",
    "1.0.0-a",
    "1.0.0-a.1",
    "1.0.0-1",
    "1.0.0-a-b.2+x.y",
    "2.0.0-0",
)
TEXTS: Final = (*VERSIONS, "v1.0", "1", "01.2.03", "1.0.0-01", "1.00.0", "v01.0.0-a", "1.0-a", "x", "1.0.0.0", "1.0.0+")
QUANTITIES: Final = (
    "0",
    "1",
    "1Gi",
    "1024Mi",
    "1G",
    "1500m",
    "1.5",
    "1e3",
    "1k",
    "0.1Ki",
    "16Ei",
    "16E",
    "1e30",
    "1n",
    "-1",
)
ODD: Final = (
    "- 1 == -1",
    "-0x10 == -16",
    "!device.attributes['dra.net'].id",
    "!!device.attributes['dra.net'].id == 1",
    "device.attributes.?missing.id.hasValue()",
    "device.?attributes['dra.net'].flag.orValue(false)",
    "device.attributes['dra.net'].?flag.orValue(device.attributes['neuron.aws.com'].?flag)",
    "device.attributes['dra.net'].?version == device.attributes['neuron.aws.com'].?kind",
    "has(device.attributes) && has(device.driver) && has(device.attributes.missing)",
    "has(device.attributes.?missing.id)",
    "has(device.attributes['dra.net'].id.more)",
    "device.attributes['dra.net'].?id.more.hasValue()",
    "device.attributes['dra.net'].version.major || true",
    "device.attributes[device.attributes['neuron.aws.com'].kind].flag",
    "device.attributes['dra.net'][device.attributes['neuron.aws.com'].kind] == 1",
    "device.attributes['dra.net'].version in device.attributes",
    "device.capacity['dra.net'].id in [device.capacity['neuron.aws.com'].id]",
    "(device.attributes['dra.net'].id in []) in [false]",
    "(device.attributes['dra.net'].missing == (device.attributes['dra.net'].version in ['a'])) || true",
    "semver('1.0.0', device.attributes['dra.net'].flag) == semver('1.0.0')",
    "semver(device.driver) == semver('1.0.0') || semver(device.attributes['dra.net'].kind) == semver('1.0.0')",
    "device . attributes [ 'dra.net' ] . flag // a comment\r || true",
    "'\U0001f600' > '\uffff' == true",
    "[[1], [2]] == [[1], [2],]",
    "device == device",
)
COMPARISONS: Final = ("==", "!=", "==", "!=", "<", "<=", ">", ">=")
NOT_SERVED: Final = (
    "device.driver.matches('^n')",
    "device.driver.size() > 3",
    "size(device.driver) == 7",
    "1 + 1 == 2",
    "1.5 < 2.0",
    "1u == 1u",
    "device.attributes.exists(name, name == 'dra.net')",
    "cel.bind(all, device.attributes['dra.net'], has(all.id))",
    "(device.driver == 'dra.net' ? true : false)",
    "device.driver.lowerAscii() == 'dra.net'",
    "isSemver(device.driver)",
    "b'a' == b'a'",
    "null == null",
    "{'a': 1} == {'a': 1}",
    "device.allowMultipleAllocations",
)

Attribute = Mapping[str, bool | int | str]


@attrs.frozen
class Device:
    """A device as the API writes it: each attribute is a mapping of its type and its value."""

    driver: str
    attributes: Mapping[str, Attribute]
    capacity: Mapping[str, str]


@attrs.define(eq=False)
class Source:
    """Where expressions and devices come from."""

    _random: random.Random

    def device(self) -> Device:
        """Return a device; each name, with and without its domain, has a value of any type."""
        some = self._random
        names = [f"{domain}/{name}" for domain in DOMAINS[:-1] for name in NAMES] + list(NAMES)
        chosen = some.sample(names, some.choice((0, 8, 16, 20)))
        driver = some.choice(DRIVERS)
        # The API refuses a name with and without the driver's domain.
        kept = [name for name in chosen if "/" in name or (driver and f"{driver}/{name}" not in chosen)]
        return Device(
            driver,
            {name: self._attribute(name.rpartition("/")[2]) for name in kept},
            {name: some.choice(QUANTITIES) for name in kept if some.random() < 0.5},
        )

    def _attribute(self, name: str) -> Attribute:
        kinds: Mapping[str, Sequence[bool | int | str]] = {
            "int": NUMBERS,
            "string": STRINGS,
            "version": VERSIONS,
            "bool": (True, False),
        }
        usual = {"id": "int", "kind": "string", "version": "version", "flag": "bool"}.get(name)
        kind = usual if usual and self._random.random() < 0.8 else self._random.choice(list(kinds))
        return {kind: self._random.choice(kinds[kind])}

    def expression(self) -> str:
        return self._bool(self._random.choice((1, 2, 3, 4)))

    def _name(self) -> str:
        return self._random.choice((*NAMES, *NAMES, MISSING))

    def _one(self, *choices: tuple[int, Callable[[], str]]) -> str:
        weights = [weight for weight, _ in choices]
        return self._random.choices([make for _, make in choices], weights)[0]()

    def _bool(self, depth: int) -> str:
        """Return an expression that is a bool if its parts have the right types."""
        if depth <= 0:
            return self._one(
                (4, lambda: self._compared(0)),
                (2, lambda: f"has({self._field(of='attributes')})"),
                (1, lambda: self._random.choice(("true", "false"))),
                (2, self._attribute_value),
            )
        return self._one(
            (6, lambda: self._joined(depth)),
            (2, lambda: f"{'!' * self._random.choice((1, 1, 1, 2, 3))}{self._closed(self._bool(depth - 1))}"),
            (1, lambda: f"!{self._bool(depth - 1)}"),
            (1, lambda: f"{self._contained(depth - 1)} == {self._compared(depth - 1)}"),
            (6, lambda: self._compared(depth - 1)),
            (3, lambda: self._contained(depth - 1)),
            (3, lambda: self._string_method(depth - 1)),
            (3, lambda: self._version_method(depth - 1)),
            (2, lambda: f"has({self._field()})"),
            (1, lambda: self._random.choice(ODD)),
            (2, lambda: f"{self._domain()}.?{self._name()}.hasValue()"),
            (2, lambda: self._closed(self._bool(depth - 1))),
            (1, lambda: self._or_value(lambda: self._bool(depth - 1))),
            (1, self._attribute_value),
        )

    def _joined(self, depth: int) -> str:
        sign = self._random.choice(("&&", "||"))
        parts = [self._bool(depth - 1) for _ in range(self._random.choice((2, 2, 3, 5)))]
        if self._random.random() < 0.02:
            parts[0] = self._random.choice(NOT_SERVED)
        return f"{self._space()}{sign}{self._space()}".join(parts)

    def _compared(self, depth: int) -> str:
        sign = self._random.choice(COMPARISONS)
        left, right = self._value(depth), self._value(depth)
        kind = self._random.random()
        if kind < 0.6:  # as people write it
            name, make = self._random.choice(
                (("id", self._number), ("kind", self._string), ("flag", self._bool_value), ("version", self._version))
            )
            sign = self._random.choice(("==", "!=")) if name == "version" else sign
            left, right = f"{self._domain('attributes')}.{name}", make()
        elif kind < 0.7:
            left, right = self._closed(self._bool(depth)), self._attribute_value()
        if self._random.random() < 0.3:
            left, right = right, left
        return f"{left}{self._space()}{sign}{self._space()}{right}"

    def _contained(self, depth: int) -> str:
        return self._one(
            (4, lambda: f"{self._value(depth)} in {self._list(depth)}"),
            (2, lambda: f"{self._value(depth)} in []"),
            (2, lambda: f"{self._string()} in {self._domain()}"),
            (2, lambda: f"{self._value(depth)} in {self._domain()}"),
            (2, lambda: f"{self._string()} in device.{self._random.choice(('attributes', 'capacity'))}"),
            (1, lambda: f"{self._value(depth)} in {self._attribute_value()}"),
            (1, lambda: f"{self._value(depth)} in {self._or_value(lambda: self._list(depth))}"),
            (1, lambda: f"{self._list(depth)}[{self._random.choice((0, 1))}] == {self._value(depth)}"),
            (1, lambda: f"{self._list(depth)} == {self._list(depth)}"),
            (1, lambda: f"{self._list(depth)} in [{self._list(depth)}, {self._list(depth)}]"),
        )

    def _string_method(self, depth: int) -> str:
        name = self._random.choice(("startsWith", "endsWith", "contains"))
        return f"{self._one((4, self._attribute_value), (1, self._string))}.{name}({self._value(depth)})"

    def _version_method(self, depth: int) -> str:
        table, make = self._random.choice(
            (
                *(("attributes", self._version), ("capacity", self._quantity)) * 4,
                ("attributes", lambda: self._value(depth)),
            )
        )
        target = self._one((4, lambda: self._field(table)), (1, make))
        if self._random.random() < 0.3:
            return f"{target}.compareTo({make()}) {self._random.choice(COMPARISONS)} {self._random.choice((-1, 0, 1))}"
        return f"{target}.{self._random.choice(('isLessThan', 'isGreaterThan'))}({make()})"

    def _value(self, depth: int) -> str:
        return self._one(
            (6, self._attribute_value),
            (2, self._string),
            (2, self._number),
            (1, self._bool_value),
            (1, self._version),
            (1, self._quantity),
            (1, lambda: self._or_value(lambda: self._value(depth - 1))),
            (1, lambda: self._closed(self._bool(depth - 1)) if depth > 0 else "true"),
            (1, lambda: f"{self._domain()}.?{self._name()}"),
        )

    def _or_value(self, other: Callable[[], str]) -> str:
        return f"{self._domain()}{self._optional_name()}.orValue({other()})"

    def _optional_name(self) -> str:
        name = self._name()
        return self._random.choice((f".?{name}", f".?{name}", f"[?'{name}']"))

    def _attribute_value(self) -> str:
        if self._random.random() < 0.1:
            return "device.driver"
        return self._field(of=self._random.choice(("attributes",) * 6 + ("capacity",)))

    def _field(self, of: str | None = None) -> str:
        return f"{self._domain(of)}.{self._name()}"

    def _domain(self, of: str | None = None) -> str:
        domain = self._random.choice(DOMAINS)
        table = of or self._random.choice(("attributes", "attributes", "capacity"))
        key = "device.driver" if self._random.random() < 0.1 else self._quoted(domain)
        return f"device.{table}[{'?' if self._random.random() < 0.02 else ''}{key}]"

    def _list(self, depth: int) -> str:
        make = self._random.choice(
            (self._string, self._string, self._number, self._bool_value, self._version, lambda: self._value(depth))
        )
        parts = [make() for _ in range(self._random.choice((0, 1, 2, 4)))]
        return f"[{', '.join(parts)}{',' if parts and self._random.random() < 0.1 else ''}]"

    def _string(self) -> str:
        return self._quoted(self._random.choice(STRINGS))

    def _quoted(self, text: str) -> str:
        """Return a literal: with either quotation mark, one or three of them, raw where that can say it."""
        quote = self._random.choice(("'", '"', "'''", '"""'))
        if "\\" in text and quote[0] not in text and self._random.random() < 0.5:
            return f"{self._random.choice('rR')}{quote}{text}{quote}"
        escaped = text.replace("\\", "\\\\").replace(quote[0], f"\\{quote[0]}").replace("\n", "\\n")
        if len(quote) == 3 and self._random.random() < 0.3:
            escaped = escaped.replace("\\n", self._random.choice(("\n", "\r\n", "\r")))
        return f"{quote}{escaped}{quote}"

    def _number(self) -> str:
        number = self._random.choice(NUMBERS)
        return f"0x{number:x}" if number >= 0 and self._random.random() < 0.1 else str(number)

    def _bool_value(self) -> str:
        return self._random.choice(("true", "false"))

    def _version(self) -> str:
        is_tolerant = self._random.choice(("", "", ", true", ", false"))
        return f"semver({self._quoted(self._random.choice(TEXTS))}{is_tolerant})"

    def _quantity(self) -> str:
        return f"quantity({self._quoted(self._random.choice((*QUANTITIES, 'x')))})"

    def _closed(self, text: str) -> str:
        return f"({text})"

    def _space(self) -> str:
        return self._random.choice((" ", " ", " ", "", "\n", "  ", " // a comment: 'x' ||\n"))
