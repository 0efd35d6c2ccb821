"""The selectors that people write, what no other language does, what is refused, and what a tenant can make of it."""

import random
import re
from typing import Final

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.model.version import Version
from neuron_scheduler.neuron.claims.cel import MOST_NESTED, Attribute, CelError, DeviceSelector, compile_selector
from tests.neuron.claims.expressions import Source

DRIVER: Final = "neuron.aws.com"
VERSION: Final = Version(1, 2, 3)
ATTRIBUTES: Final[dict[str, Attribute]] = {
    "neuron.aws.com/deviceId": 3,
    "neuron.aws.com/instanceType": "trn2.48xlarge",
    "neuron.aws.com/neuronDriverVersion": "2.21.37.0",
    "neuron.aws.com/draDriverVersion": VERSION,
    "neuron.aws.com/isShared": False,
    "resource.aws.com/devicegroup4_id": "row-0",
}
CAPACITY: Final = {"neuron.aws.com/memory": "96Gi"}
OWN: Final = 'device.attributes["neuron.aws.com"]'
LONGEST: Final = 10 * 1024
"""Characters that the API server allows in an expression."""


def match(expression: str) -> bool | str:
    """Return the answer for the device above; an error, or what is not served, as its text."""
    selector = compile_selector(expression)
    if isinstance(selector, str):
        return selector
    answer = selector.matches(DRIVER, ATTRIBUTES, CAPACITY)
    return answer.text if isinstance(answer, CelError) else answer


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ('device.driver == "neuron.aws.com"', True),
        (f"{OWN}.resourceType == 'neuron_node'", "the device has no attribute neuron.aws.com/resourceType"),
        (f"{OWN}.neuronDriverVersion.startsWith('2.21.')", True),
        (f"{OWN}.instanceType in ['trn1.32xlarge', 'trn2.48xlarge']", True),
        (f"{OWN}['deviceId'] < 4 && !{OWN}.isShared", True),
        ("device.attributes[device.driver].deviceId == 3", True),
        ('has(device.attributes["neuron.aws.com"].workloadId)', False),
        (f"'deviceId' in {OWN} && !('dra.net' in device.attributes)", True),
        ("has(device.attributes['dra.net'].rdma)", False),
        (f"{OWN}.?workloadId.orValue('') == ''", True),
        (f"{OWN}.draDriverVersion.compareTo(semver('1.2.0')) >= 0", True),
        (f"{OWN}.draDriverVersion.isLessThan(semver('v1.3', true))", True),
        ("device.capacity['neuron.aws.com'].memory.compareTo(quantity('100G')) > 0", True),
    ],
)
def test_what_people_write(expression: str, want: bool | str) -> None:
    """The expressions of AWS's documents and their like are answered; an error names what the device lacks."""
    assert match(expression) == want


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (f"{OWN}.missing in []", False),
        (f"{OWN}.draDriverVersion == '1.2.3'", "== does not take a version and a string"),
        (f"'1.2.3' == {OWN}.draDriverVersion", False),
        (f"{OWN}.draDriverVersion != '1.2.3'", True),
        (f"{OWN}.draDriverVersion in ['1.2.3'] || true", "in does not take a version and a list of literals"),
        (f"{OWN}.draDriverVersion in [{OWN}.deviceId]", False),
        (f"[{OWN}.draDriverVersion] == ['a']", True),
        (f"{OWN}.missing || true", True),
        (f"{OWN}.missing && false", False),
        (f"{OWN}.deviceId || true", True),
        (f"{OWN}.deviceId || false", "|| does not take an int"),
        (f"{OWN}.missing == 1 || {OWN}.isShared", "the device has no attribute neuron.aws.com/missing"),
        (f"{OWN}.isShared == 0", False),
        (f"!!{OWN}.deviceId == 3", True),
        (f"!{OWN}.isShared == true == true", True),
        (f"{OWN}.deviceId", "the result is an int, not a bool"),
        (f"{OWN}.instanceType < 3", "< does not take a string and an int"),
        (
            f"{OWN}.instanceType.contains('\\x41')",
            "'\\x' in a string is not served in the CEL expression of a selector",
        ),
        ("'a\\'\"' == r'a' || \"\"\"\n\"\"\" == '\\n' // a comment", True),
        ("semver('1.0') == semver('1.0.0')", "'1.0' is not a semantic version"),
    ],
)
def test_what_only_cel_does(expression: str, want: bool | str) -> None:
    """As cel-go does: lists of literals are maps, errors beside an operand that decides do not count."""
    assert match(expression) == want


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("device.driver.matches('^n')", "'matches'"),
        (f"{OWN}.ids.exists(id, id == 3)", "'exists'"),
        (f"cel.bind(own, {OWN}, has(own.deviceId))", "'cel.bind'"),
        ("true ? true : false", "'?'"),
        (f"{OWN}.deviceId + 1 == 4", "'+'"),
        (f"{OWN}.deviceId > 1.5", "'1.5'"),
        (f"{OWN}.deviceId == 3u", "'3u'"),
        ("device.allowMultipleAllocations", "'allowMultipleAllocations'"),
        ("size(device.driver) == 3", "'size'"),
        ("{'a': 1} == {'a': 1}", "'{'"),
        ("null == null", "'null'"),
        ("", "an incomplete expression"),
        ("device.driver ==", "an incomplete expression"),
        ("(" * MOST_NESTED + "true" + ")" * MOST_NESTED, "nesting of more than 50 operands"),
        ("==".join(["true"] * (MOST_NESTED + 2)), "nesting of more than 50 operands"),
    ],
)
def test_what_is_not_served_is_said_first(expression: str, part: str) -> None:
    """The sentence begins with the part that is meant, so that a reader sees it wherever the text is cut."""
    assert compile_selector(expression) == f"{part} is not served in the CEL expression of a selector"


def test_maps_are_not_compared() -> None:
    """No answer is guessed where upstream compares attribute by attribute."""
    assert match(f"{OWN} == {OWN} || true") == "a comparison of two maps is not served"


@pytest.mark.parametrize(
    "operand",
    [
        "!",
        "(",
        "[",
        "-",
        "has(",
        "device.attributes",
        ".a",
        ".?a",
        "[0]",
        "a.b(",
        '"',
        "'''",
        "//",
        "&&",
        "\\",
        "1",
        "é",
    ],
)
def test_no_expression_exhausts_the_stack(operand: str) -> None:
    """Whatever is written again and again up to the API server's limit ends in a selector or in a sentence."""
    for expression in (operand * LONGEST, "device" + operand * LONGEST, operand * 900, f"true || {operand * 40}"):
        assert isinstance(compile_selector(expression[:LONGEST]), DeviceSelector | str)


@given(st.integers(0, 10_000))
def test_a_damaged_expression_raises_nothing(seed: int) -> None:
    """An expression whose words are mixed ends in an answer or in a sentence, although no API server lets it pass."""
    some = random.Random(seed)
    words = re.findall(r"\w+|\s+|.", Source(some).expression(), re.DOTALL)
    for _ in range(some.choice((0, 1, 2, 5))):
        words.insert(some.randrange(len(words) + 1), words.pop(some.randrange(len(words))))
    assert isinstance(match("".join(words)), bool | str)


def test_selectors_are_compiled_once() -> None:
    """Each device class is asked for each device."""
    assert compile_selector("true") is compile_selector("true")
