"""Idempotency-Keys: a repeated request gets the answer of the first one, byte for byte, and its work is done once."""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from service.domain.errors import (
    Conflict,
    IdempotencyInFlight,
    IdempotencyMismatch,
    Invalid,
    Problem,
    Refused,
    Unavailable,
)
from service.store import idempotency
from service.store.database import Database
from service.store.idempotency import Standing
from service.store.vault import Unreadable, Vault
from service.web.answers import Answer

log = structlog.get_logger()

TTL_SECONDS = 24 * 3600.0

_VISIBLE = re.compile(r"[!-~]{1,255}")
_QUOTED = re.compile(r'"((?:[!#-\[\]-~]|\\["\\]){1,510})"')

Work = Callable[[], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer, and whether it is the one of an earlier request."""

    answer: Answer
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Once:
    """One request under its key: who sent it, and the digest of method, path, query and body."""

    db: Database
    vault: Vault
    actor: str
    key: str
    request_sha256: bytes

    async def do(self, work: Work) -> Kept:
        """Do the work and keep its answer, refusals included; or give the answer that is kept.

        A request whose fields cannot be accepted takes no key: it may be mended and sent again under the same.

        Raises:
            IdempotencyInFlight: the first request with this key has not been answered yet.
            IdempotencyMismatch: the key was used with another request.
            Conflict: the answer that is kept can no longer be opened.
            Invalid: the request has fields that cannot be accepted.
            Unavailable: the database is away; the key is free again.

        """
        async with self.db.begin() as tx:
            begun = await idempotency.begin(
                tx, actor=self.actor, key=self.key, request_sha256=self.request_sha256, ttl_seconds=TTL_SECONDS
            )
        if begun.standing is Standing.IN_FLIGHT:
            raise IdempotencyInFlight
        if begun.standing is Standing.MISMATCH:
            raise IdempotencyMismatch
        if begun.began_at is None:
            return Kept(self._open(begun.status, begun.sealed_answer), replayed=True)
        return Kept(await self._fresh(work, begun.began_at))

    async def _fresh(self, work: Work, began_at: datetime) -> Answer:
        try:
            answer = await work()
        except BaseException as error:
            if not isinstance(error, Refused) or isinstance(error, Invalid):
                await asyncio.shield(self._forget(began_at))
                raise
            answer = Answer.refusal(error)
        await asyncio.shield(self._finish(began_at, answer))
        return answer

    async def _finish(self, began_at: datetime, answer: Answer) -> None:
        """Keep the answer. The work is done either way; without it, the same request may run again in a minute."""
        sealed = self.vault.seal(answer.packed())
        try:
            async with self.db.begin() as tx:
                await idempotency.finish(
                    tx, actor=self.actor, key=self.key, began_at=began_at, status=answer.status, sealed_answer=sealed
                )
        except Unavailable:
            log.warning("idempotency.answer_lost", actor=self.actor)

    async def _forget(self, began_at: datetime) -> None:
        """Free the key, because nothing was done; where that fails too, it frees itself after a minute."""
        try:
            async with self.db.begin() as tx:
                await idempotency.forget(tx, actor=self.actor, key=self.key, began_at=began_at)
        except Unavailable:
            log.warning("idempotency.key_kept", actor=self.actor)

    def _open(self, status: int | None, sealed: bytes | None) -> Answer:
        try:
            return Answer.unpacked(status or 0, self.vault.open(sealed or b""))
        except Unreadable:
            log.warning("idempotency.answer_unreadable", actor=self.actor, mend="put the key that sealed it back")
            message = (
                "This request was answered before, but the answer was sealed with a key that is no longer among "
                "TOCSIN_ENCRYPTION_KEYS. Look at what stands now; to do it once more, use a new Idempotency-Key."
            )
            raise Conflict(message) from None


def key_of(headers: Sequence[str]) -> str | None:
    """The key in the Idempotency-Key headers, bare or as a quoted string (RFC 8941); None where there is none.

    Raises:
        Invalid: it is not 1 to 255 visible ASCII characters, or there are two.

    """
    if not headers:
        return None
    if len(headers) > 1:
        raise Invalid(Problem("/header/Idempotency-Key", "must not be there twice"))
    value = headers[0].strip()
    if value.startswith('"'):
        quoted = _QUOTED.fullmatch(value)
        value = re.sub(r'\\(["\\])', r"\1", quoted[1]) if quoted else ""
    if not _VISIBLE.fullmatch(value):
        raise Invalid(Problem("/header/Idempotency-Key", "must be 1 to 255 visible ASCII characters, bare or quoted"))
    return value


def digest(*parts: bytes) -> bytes:
    """A digest that no shifting of bytes between the parts leaves the same."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
    return whole.digest()
