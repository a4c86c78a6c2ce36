"""API keys as this process knows them: looked up by their SHA-256 and remembered for a moment."""

import asyncio
import hmac
import time
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from pydantic import SecretStr

from service.domain.errors import Contended, Unauthenticated, Unavailable
from service.domain.model import Scope
from service.store import keys
from service.store.database import Database

BOOTSTRAP = "bootstrap"
"""The actor behind TOCSIN_BOOTSTRAP_KEY."""
REMEMBER_SECONDS = 5.0
"""For so long at most, a revoked key still works in a process that saw it just before."""

NOTING_SECONDS = 2.0
"""For so long at most, a use that is being noted keeps a connection."""

_MAX_REMEMBERED = 1000
_MAX_NOTING = 2
"""Uses that are being noted at once: a slow database's connections are for requests."""
_MAX_KEY_CHARS = 512


@dataclass(frozen=True, slots=True)
class Actor:
    """The holder of a key; the name stands in the audit trail."""

    name: str
    scope: Scope


class Keyring:
    """Which keys are good. Only good ones are remembered, so that a new key works at once."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._remembered: dict[bytes, tuple[Actor, float]] = {}
        self._noting: set[asyncio.Task[None]] = set()

    async def actor(self, db: Database, bootstrap: SecretStr | None, key: str) -> Actor:
        """The holder of the key. The bootstrap key is compared in constant time and needs no database.

        Raises:
            Unauthenticated: nobody holds it.
            Unavailable: the database cannot be asked.

        """
        if not 1 <= len(key) <= _MAX_KEY_CHARS:
            raise Unauthenticated
        return await self.holder(db, bootstrap, keys.digest(key))

    async def holder(self, db: Database, bootstrap: SecretStr | None, digest: bytes) -> Actor:
        """The holder of the key with this digest, as a session remembers it.

        Raises:
            Unauthenticated, Unavailable: as `actor`.

        """
        if bootstrap and hmac.compare_digest(digest, keys.digest(bootstrap.get_secret_value())):
            return Actor(BOOTSTRAP, Scope.ADMIN)
        known = self._recall(digest)
        return known or await self._look_up(db, digest)

    def _recall(self, digest: bytes) -> Actor | None:
        actor, until = self._remembered.get(digest, (None, 0.0))
        return actor if until > time.monotonic() else None

    async def _look_up(self, db: Database, digest: bytes) -> Actor:
        async with db.begin() as tx:
            record = await keys.find(tx, digest)
            began = tx.now
        self._remembered.pop(digest, None)
        if record is None:
            raise Unauthenticated
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        actor = Actor(record.name, record.scope)
        left = (record.expires_at - began).total_seconds() if record.expires_at else REMEMBER_SECONDS
        self._remembered[digest] = (actor, time.monotonic() + min(left, REMEMBER_SECONDS))
        if record.last_used_at is None or (began - record.last_used_at).total_seconds() > keys.NOTE_SECONDS:
            self._note(db, record.id)
        return actor

    def _note(self, db: Database, id: UUID) -> None:  # noqa: A002 - the column's name
        """Note the use beside the request, which does not wait for it."""
        if len(self._noting) < _MAX_NOTING:
            noting = asyncio.create_task(_note_use(db, id))
            self._noting.add(noting)
            noting.add_done_callback(self._noting.discard)


async def _note_use(db: Database, id: UUID) -> None:  # noqa: A002 - the column's name
    """A use that cannot be noted, because the database is away or read-only, is noted the next time."""
    with suppress(Unavailable, Contended):
        async with db.bounded(seconds=NOTING_SECONDS).ask() as tx:
            await keys.note_use(tx, id)
