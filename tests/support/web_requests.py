"""Requests as aiohttp's server hands them to a page, and what a page answers, without a connection."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from unittest.mock import Mock

from aiohttp import StreamReader, web
from aiohttp.test_utils import make_mocked_request

from neuron_scheduler.serving.pages import RefusedError, WebPage

NO_FIELDS: Mapping[str, str] = MappingProxyType({})


def request(
    target: str,
    fields: Mapping[str, str] = NO_FIELDS,
    *,
    body: bytes | None = None,
    peer: str = "127.0.0.1",
    encrypted: bool = False,
) -> web.BaseRequest:
    """Return a request; a POST if it has a body."""
    method = "GET" if body is None else "POST"
    transport = Mock()
    transport.get_extra_info = {"peername": (peer, 1)}.get
    if body is None:
        return make_mocked_request(
            method, target, fields, transport=transport, sslcontext=Mock() if encrypted else None
        )
    payload = StreamReader(Mock(), 1 << 20, loop=asyncio.get_running_loop())
    payload.feed_data(body)
    payload.feed_eof()
    return make_mocked_request(method, target, fields, transport=transport, payload=payload, client_max_size=128 << 10)


async def answer(page: WebPage, asked: web.BaseRequest) -> web.Response:
    """Return what a page answers, a refusal, too."""
    try:
        response = await page.answer_to(asked)
    except RefusedError as error:
        response = error.response()
    assert isinstance(response, web.Response)
    return response


async def body_of(response: web.Response) -> bytes:
    """Return the whole body of an answer."""
    assert isinstance(response.body, bytes | None)
    return response.body or b""
