"""API keys as this process knows them: looked up by their SHA-256 and remembered for a moment."""

import hmac
import time
from dataclasses import dataclass

from pydantic import SecretStr

from service.domain.errors import Unauthenticated
from service.domain.model import Scope
from service.store import keys
from service.store.database import Database

BOOTSTRAP = "bootstrap"
"""The actor behind TOCSIN_BOOTSTRAP_KEY."""
REMEMBER_SECONDS = 5.0
"""For so long at most, a revoked key still works in a process that saw it just before."""

_MAX_REMEMBERED = 1000
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

    async def actor(self, db: Database, bootstrap: SecretStr | None, key: str) -> Actor:
        """The holder of the key. The bootstrap key is compared in constant time and needs no database.

        Raises:
            Unauthenticated: nobody holds it.
            Unavailable: the database cannot be asked.

        """
        if not 1 <= len(key) <= _MAX_KEY_CHARS:
            raise Unauthenticated
        digest = keys.digest(key)
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
        self._remembered.pop(digest, None)
        if record is None:
            raise Unauthenticated
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        actor = Actor(record.name, record.scope)
        self._remembered[digest] = (actor, time.monotonic() + REMEMBER_SECONDS)
        return actor
