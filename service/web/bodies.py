"""Request bodies: read as raw bytes within a size and a time, then parsed strictly; nothing is buffered beyond that."""

import asyncio
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from service.domain import jsontext
from service.domain.errors import Invalid, TooLarge, UnsupportedEncoding
from service.web.faults import problems_of
from service.web.problems import Malformed, TooSlow

TICK_BYTES = 16 * 1024
EVENT_BYTES = 256 * 1024 + 8 * 1024
"""An event's data may have 256 KiB; the rest is for the fields around it."""
OTHER_BYTES = 64 * 1024

DEADLINE_SECONDS = 10.0
"""For the whole body, however it is sliced."""

ModelT = TypeVar("ModelT", bound=BaseModel)


async def read(request: Request, limit: int) -> bytes:
    """The whole body; whoever is refused here is also disconnected, see `edge`.

    Raises:
        UnsupportedEncoding: it is compressed.
        TooLarge: it has more than `limit` bytes; known from its head or as soon as the byte too many arrives.
        TooSlow: it did not arrive within DEADLINE_SECONDS.
        Malformed: the caller hung up in the middle.

    """
    if request.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise UnsupportedEncoding
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and (len(announced) > len(str(limit)) or int(announced) > limit):
        raise _too_large(limit)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await _collect(request, limit)
    except TimeoutError:
        raise TooSlow from None
    except ClientDisconnect:
        raise Malformed from None


async def _collect(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit:
            raise _too_large(limit)
        body += chunk
    return bytes(body)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is larger than the {limit} bytes that this endpoint accepts.")


def parse(model: type[ModelT], raw: bytes) -> ModelT:
    """The body as a model.

    Raises:
        NotJson: it is no JSON.
        Invalid: it has faults; each is named by a pointer, none is echoed.

    """
    members, _ = jsontext.parse_object(raw)
    return validate(model, members)


def validate(model: type[ModelT], members: dict[str, jsontext.Json]) -> ModelT:
    """Parsed members as a model.

    Raises:
        Invalid: as for `parse`.

    """
    try:
        return model.model_validate(members)
    except ValidationError as error:
        raise Invalid(*problems_of(error.errors(include_url=False, include_input=False))) from None
