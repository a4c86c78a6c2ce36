"""Who looks at a page: an API key, remembered in a sealed cookie by its digest."""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response

from service.domain.errors import Unauthenticated
from service.store import dispatching, keys
from service.store.database import Database
from service.store.dispatching import Standing
from service.store.vault import Unreadable, Vault
from service.web.keyring import Actor
from service.web.state import State, WebState

HOME = "/console/"
COOKIE = "tocsin_session"
PATH = "/console"
LIFE_SECONDS = 12 * 3600
"""A session ends so long after its sign-in, whether it was used or not; and with its key, when that ends."""

DOOR_SECONDS = 2.5
"""How long the database may take to say who is signed in, which comes before every page: where it hangs, a page says so
within five seconds, since giving up a connection that hangs takes two more. What a page then reads may take as long as
any request."""

_MARK = b"tocsin console session\n"
"""Nothing else that this vault seals begins so."""
_STAMP_BYTES = 8
_MAX_COOKIE_CHARS = 1024


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is signed in; `csrf` stands in each of their forms."""

    actor: Actor
    csrf: str


@dataclass(frozen=True, slots=True)
class Frame:
    """What every page shows around its own content; `now` is the database's."""

    session: Session
    dispatch: Standing
    now: datetime


class SignInNeeded(Exception):
    """Nobody is signed in; the browser is sent to where one may."""


async def signed_in(request: Request, state: State) -> Session:
    """The session of the request; what its page shows around it is put into `request.state.frame`.

    Raises:
        SignInNeeded: there is no session, it has ended, or its key has.
        Unavailable: the database cannot be asked.

    """
    session = await session_of(request, state)
    if session is None:
        raise SignInNeeded
    async with at_the_door(state).begin() as tx:
        request.state.frame = Frame(session, await dispatching.standing(tx), tx.now)
    return session


Signed = Annotated[Session, Depends(signed_in)]


async def session_of(request: Request, state: WebState) -> Session | None:
    """The session of the request; None where there is none that is good."""
    house, cookie = state.runtime, request.cookies.get(COOKIE, "")
    digest = _digest_in(house.vault, cookie)
    if digest is None:
        return None
    try:
        actor = await state.keyring.holder(at_the_door(state), house.settings.bootstrap_key, digest)
    except Unauthenticated:
        return None
    return Session(actor, house.vault.tag("console form", cookie.encode()))


def at_the_door(state: WebState) -> Database:
    """The database for questions of who somebody is."""
    return state.runtime.db.bounded(seconds=DOOR_SECONDS)


def begin(request: Request, response: Response, vault: Vault, key: str) -> None:
    """Remember the holder of this key, which was found good, in the browser."""
    issued = int(time.time()).to_bytes(_STAMP_BYTES, "big")
    value = vault.seal(_MARK + issued + keys.digest(key)).decode("ascii")
    put_cookie(request, response, COOKIE, value, LIFE_SECONDS)


def end(response: Response) -> None:
    """Have the browser forget the session."""
    response.delete_cookie(COOKIE, path=PATH)


def put_cookie(request: Request, response: Response, name: str, value: str, seconds: int) -> None:
    """A cookie of the console alone: no script reads it, no other site sends it, TLS where there is TLS."""
    # A forged header of a proxy can only make the cookie stricter.
    forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
    secure = "https" in (request.url.scheme, forwarded)
    response.set_cookie(name, value, max_age=seconds, path=PATH, httponly=True, samesite="strict", secure=secure)


def _digest_in(vault: Vault, cookie: str) -> bytes | None:
    """The digest of the key that a session was begun with; None where the cookie is not ours, or too old."""
    if not (0 < len(cookie) <= _MAX_COOKIE_CHARS and cookie.isascii()):
        return None
    try:
        opened = vault.open(cookie.encode())
    except Unreadable:
        return None
    if not opened.startswith(_MARK):
        return None
    rest = opened.removeprefix(_MARK)
    age = time.time() - int.from_bytes(rest[:_STAMP_BYTES], "big")
    return rest[_STAMP_BYTES:] if age <= LIFE_SECONDS else None
