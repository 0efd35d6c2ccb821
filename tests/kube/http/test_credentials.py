"""A token in a file is read again, and the last good one is used while that fails."""

from pathlib import Path

import pytest

from neuron_scheduler.kube.http.credentials import Fixed, TokenFile
from neuron_scheduler.telemetry.errors import CredentialsError
from neuron_scheduler.telemetry.logs import REMIND
from tests.support.clock import Clock


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


async def test_a_token_file(tmp_path: Path) -> None:
    """It is stripped, re-read after a while, and at once after a 401."""
    path, clock = tmp_path / "token", Clock()
    path.write_text("one\n")
    tokens = TokenFile(str(path), clock)
    assert await tokens.authorization() == "Bearer one"

    path.write_text("two\n")
    assert await tokens.authorization() == "Bearer one"
    clock.now += 10
    assert await tokens.authorization() == "Bearer two"

    path.write_text("three")
    assert await tokens.renew("Bearer two") == "Bearer three"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"], ids=repr)
async def test_a_token_file_that_is_unusable_for_a_moment(tmp_path: Path, content: bytes | None) -> None:
    """The last good token is kept, and without one the error says what to check."""
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    tokens = TokenFile(str(path), clock)
    await tokens.authorization()
    path.unlink() if content is None else path.write_bytes(content)
    clock.now += 60

    assert await tokens.authorization() == "Bearer one"
    with pytest.raises(CredentialsError, match="token"):
        await TokenFile(str(path), clock).authorization()


async def test_a_token_file_that_stays_missing_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """400 pods' requests and 401s write one line; another follows after ten minutes, and one after the recovery."""
    caplog.set_level("INFO")
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    tokens = TokenFile(str(path), clock)
    await tokens.authorization()
    path.unlink()
    for _ in range(400):
        clock.now += 0.5
        assert await tokens.authorization() == "Bearer one"
        assert await tokens.renew("Bearer one") == "Bearer one"
    assert logged(caplog) == ["Could not read the token file, keeping the last token"]

    clock.now += REMIND
    await tokens.authorization()
    path.write_text("two")
    clock.now += 10
    assert await tokens.authorization() == "Bearer two"
    assert logged(caplog)[1:] == [
        "Could not read the token file, keeping the last token",
        "Token file can be read again",
    ]


async def test_a_token_file_that_never_gave_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every request fails, one line is written, and the file is not read for each."""
    tokens = TokenFile(str(tmp_path / "token"), Clock())
    for _ in range(400):
        with pytest.raises(CredentialsError, match="check that it is mounted"):
            await tokens.authorization()

    assert len(logged(caplog)) == 1


@pytest.mark.parametrize("content", ["a\nX-Remote-User: admin", "t\u00f6ken", "a\x00b"])
async def test_a_token_that_would_be_another_header(tmp_path: Path, content: str) -> None:
    """A token that is not one line of ASCII is not sent."""
    path = tmp_path / "token"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CredentialsError, match="no token that can be sent"):
        await TokenFile(str(path), Clock()).authorization()


def test_secrets_are_not_shown() -> None:
    """The representation of an object has no token."""
    assert "secret" not in repr([Fixed("Bearer secret"), TokenFile("/x", Clock())])
