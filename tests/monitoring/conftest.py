"""The story is told once for each test process, and its queries are answered once."""

import anyio
import pytest

from tests.monitoring.story import Story, told


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Return what the processes of the story answered."""
    return anyio.run(told, tmp_path_factory.mktemp("story"))
