"""What a disagreement needs is found without asking about everything."""

import pytest

from tests.differential.smallest import Objects, _fewest


@pytest.mark.parametrize(
    ("needed", "most"),
    [
        pytest.param(set(), 1, id="nothing is needed, which is asked first"),
        pytest.param({7}, 16, id="one of many"),
        pytest.param({0, 29}, 32, id="the first and the last"),
        pytest.param(set(range(30)), 70, id="all"),
    ],
)
async def test_what_is_not_needed_is_left_out(needed: set[int], most: int) -> None:
    """Whatever is needed stays and nothing else, after few questions."""
    asked: list[set[int]] = []
    left = set(range(30))

    async def enough(objects: Objects) -> bool:
        nonlocal left
        found = {each["number"] for each in objects}
        asked.append(found)
        if needed <= found:
            left = found
        return needed <= found

    await _fewest(tuple({"number": number} for number in range(30)), enough)
    assert left == needed
    assert len(asked) <= most
