"""Lists: the limit, the opaque cursor, and one page with the cursor of the next."""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar
from urllib.parse import unquote_to_bytes
from uuid import UUID

from fastapi import Request
from pydantic import Field

from service.domain.errors import Invalid, Problem
from service.domain.identifiers import parse_uuid
from service.store.views import Page
from service.web.fields import Asked, Digits, Out

DEFAULT_LIMIT = 50
MAX_LIMIT = 500

Position = UUID | int | str
ItemT = TypeVar("ItemT", bound=Out)
ViewT = TypeVar("ViewT")


class Listing(Out, Generic[ItemT]):
    """One page, newest first. `nextCursor` leads to the next one; it is null on the last."""

    items: list[ItemT]
    next_cursor: str | None = Field(examples=["eyJsaXN0IjoicnVucyJ9", None])


class ListQuery(Asked):
    """What every list takes."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT), Digits] = DEFAULT_LIMIT
    cursor: str | None = Field(None, max_length=500, description="`nextCursor` of the page before; opaque.")


def whole(most: int) -> Callable[[object], Position | None]:
    """Positions that are whole numbers of the database, from 0 to `most`."""

    def read(value: object) -> int | None:
        return value if type(value) is int and 0 <= value <= most else None

    return read


def uuid(value: object) -> Position | None:
    """Positions that are UUIDs."""
    return parse_uuid(value) if isinstance(value, str) else None


def name(value: object) -> Position | None:
    """Positions that are names."""
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Listed:
    """One list: what its cursors say, and how the position in them is read (None: it cannot be one)."""

    name: str
    read: Callable[[object], Position | None]

    def page(self, query: ListQuery) -> Page:
        """The page that is asked for, and one item more, which tells whether another page follows.

        Raises:
            Invalid: the cursor is none of this list's.

        """
        return Page(query.limit + 1, None if query.cursor is None else self._position(query.cursor))

    def cut(
        self,
        query: ListQuery,
        views: Sequence[ViewT],
        position: Callable[[ViewT], Position],
        looked_to: Position | None = None,
    ) -> tuple[Sequence[ViewT], str | None]:
        """The views that belong on the page, and the cursor of the next one where there is one.

        `looked_to` is the position at which the search for more was left to the next page; None where it was not.
        """
        shown = views[: query.limit]
        after = position(shown[-1]) if len(views) > query.limit else looked_to
        return shown, None if after is None else self.cursor(after)

    def cursor(self, position: Position) -> str:
        """An opaque cursor that goes on after `position`."""
        after = position if isinstance(position, int) else str(position)
        return _encode({"list": self.name, "after": after, "check": self._check(after)})

    def _position(self, cursor: str) -> Position:
        stored = _decode(cursor)
        position = self.read(stored.get("after"))
        if position is None or cursor != self.cursor(position):
            raise Invalid(Problem("/query/cursor", "is no cursor of this list; begin without one"))
        return position

    def _check(self, after: object) -> str:
        """Tells a damaged cursor from a whole one; it is no secret, since a cursor gives no right to anything."""
        return hashlib.sha256(f"{self.name}\n{after}".encode("utf-8", "replace")).hexdigest()[:8]


def _encode(stored: dict[str, object]) -> str:
    text = json.dumps(stored, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str) -> dict[str, object]:
    """What the cursor holds; nothing where it is damaged."""
    try:
        stored = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        return {}
    return stored if isinstance(stored, dict) else {}


async def single_valued(request: Request) -> None:
    """Refuse a query in which a parameter stands twice or bytes are no UTF-8: two readers would read it differently.

    Raises:
        Invalid: it is such a query.

    """
    try:
        unquote_to_bytes(request.scope.get("query_string", b"")).decode()
    except UnicodeDecodeError:
        raise Invalid(Problem("/query", "must be percent-encoded UTF-8")) from None
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) != len(names):
        raise Invalid(Problem("/query", "must not have a parameter twice"))
