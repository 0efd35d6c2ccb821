"""A minimal disagreement is found with few questions."""

import pytest

from tests.differential.smallest import Objects, _fewest


@pytest.mark.parametrize(
    ("needed", "most"),
    [
        pytest.param(set(), 1, id="nothing is needed, which is tried first"),
        pytest.param({7}, 16, id="one of many"),
        pytest.param({0, 29}, 32, id="the first and the last"),
        pytest.param(set(range(30)), 70, id="all"),
    ],
)
async def test_objects_that_are_not_needed_are_removed(needed: set[int], most: int) -> None:
    """The needed objects stay and no others, after few questions."""
    asked: list[set[int]] = []
    left = set(range(30))

    async def enough(objects: Objects) -> bool:
        nonlocal left
        numbers = {obj["number"] for obj in objects}
        asked.append(numbers)
        if needed <= numbers:
            left = numbers
        return needed <= numbers

    await _fewest(tuple({"number": number} for number in range(30)), enough)
    assert left == needed
    assert len(asked) <= most
