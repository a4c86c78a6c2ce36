"""The pool, and transactions whose clock is the database's."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn, Self

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from service.domain.errors import Contended, Unavailable

_LOST = ("08", "57", "53", "25006", "25P03", "58")
"""SQLSTATE prefixes that say "not now": connection lost, shutting down, cancelled, out of something, read-only."""

_REFUSED = ("22", "23")
"""SQLSTATE classes of a value that the database will never take."""

CHANNEL = "tocsin"
"""The NOTIFY channel of the doorbell; it carries no payload."""

_CONTENDED = ("40001", "40P01", "55P03")
"""SQLSTATEs of a transaction that lost against another one and may simply be run again."""

LOCK_SECONDS = 10.0
"""No transaction waits for longer for a lock."""

_NOW = text("SELECT now()")
_NOW_IN_TIME = text("SELECT now(), set_config('lock_timeout', :lock_timeout, true)")
"""The same for a transaction that waits for no lock for as long; one round trip for both."""


@dataclass(frozen=True, slots=True)
class Tx:
    """An open transaction."""

    conn: AsyncConnection
    began: datetime | None

    @property
    def now(self) -> datetime:
        """The database's clock at the start of the transaction (`now()`, the same for all of it).

        Raises:
            RuntimeError: it was begun without looking at the clock.

        """
        if self.began is None:
            message = "this transaction was begun without its clock"
            raise RuntimeError(message)
        return self.began


class Database:
    """The pool of connections; `begin` is the only way to a transaction."""

    def __init__(self, url: str, *, pool_size: int = 10) -> None:
        self.url = url
        self._lock_seconds: float | None = None
        self._seconds: float | None = None
        self.engine: AsyncEngine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=10,
            hide_parameters=True,
            # A job's statement returns json whose exact text is what receivers get.
            json_deserializer=str,
            connect_args={
                "timeout": 10,
                "server_settings": {
                    "application_name": "tocsin",
                    "timezone": "UTC",
                    "jit": "off",
                    # Hot statements have one good plan; a custom plan each time costs more than it finds.
                    "plan_cache_mode": "force_generic_plan",
                    "idle_in_transaction_session_timeout": "60000",
                    "lock_timeout": f"{LOCK_SECONDS * 1000:.0f}",
                    # Whatever the role has: a fan-out that it cut off would be tried again for ever. Who may not take
                    # long is bounded here, by `bounded` or by a setting of its own transaction.
                    "statement_timeout": "0",
                },
            },
        )

    def bounded(self, *, seconds: float, lock_seconds: float | None = None) -> Self:
        """The same pool for those whom somebody waits for.

        None of their transactions lasts longer than `seconds` in all, the wait for a connection included, or waits
        longer than `lock_seconds` (else LOCK_SECONDS) for a lock.
        """
        same = copy.copy(self)
        same._lock_seconds, same._seconds = lock_seconds, seconds  # noqa: SLF001 - one of its own kind
        return same

    @asynccontextmanager
    async def begin(self, *, timed: bool = True) -> AsyncIterator[Tx]:
        """A transaction, committed on leaving and rolled back on any error.

        The hot path, which asks its statements for the time, saves a round trip with `timed` False.

        Raises:
            Unavailable: the database cannot be reached, is going down, or is read-only; or the time was up.
            Contended: the transaction lost a deadlock or a serialization race, or waited for a lock for too long;
                nothing of it was written.

        """
        async with self._in_time() as conn:
            transaction = await conn.begin()
            yield Tx(conn, await self._began(conn) if timed else None)
            await transaction.commit()

    @asynccontextmanager
    async def ask(self) -> AsyncIterator[Tx]:
        """For statements of which each stands for itself, and is committed as soon as it is done.

        Raises:
            Unavailable: as for `begin`.
            Contended: as for `begin`.

        """
        async with self._in_time() as conn:
            yield Tx(await conn.execution_options(isolation_level="AUTOCOMMIT"), None)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[AsyncConnection]:
        """A connection for as long as may be, whose errors are told as ours."""
        try:
            async with asyncio.timeout(self._seconds), self._connected() as conn:
                try:
                    yield conn
                except BaseException as error:
                    # A connection that fell silent, or is tied to a server that no longer writes, is of no more use;
                    # and asking it to roll back might wait for ever.
                    if is_lost(error) or not isinstance(error, Exception):
                        await asyncio.shield(conn.invalidate())
                    if is_contended(error):
                        raise Contended from error
                    if is_lost(error):
                        raise Unavailable from error
                    raise
        except TimeoutError:
            raise Unavailable("The database had no answer in time: ask again, or for less.") from None

    async def _began(self, conn: AsyncConnection) -> datetime:
        """Bound what has to be bounded; the database's clock at the start of the transaction."""
        if self._lock_seconds is None:
            began: datetime = (await conn.execute(_NOW)).scalar_one()
        else:
            bound = {"lock_timeout": f"{self._lock_seconds * 1000:.0f}ms"}
            began = (await conn.execute(_NOW_IN_TIME, bound)).scalar_one()
        return began

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        """A connection from the pool; whatever keeps it from being had, the database cannot be reached."""
        try:
            conn = await self.engine.connect()
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise Unavailable from error
        try:
            yield conn
        finally:
            await asyncio.shield(conn.close())

    async def notify(self) -> None:
        """Ring the doorbell of every process on this database; one per flush, outside the work's transaction.

        Raises:
            Unavailable: as for `begin`.

        """
        async with self.ask() as tx:
            await tx.conn.execute(text(f"NOTIFY {CHANNEL}"))

    async def listen(self, heard: Callable[[], None], keepalive_seconds: float) -> NoReturn:
        """Call `heard` for every ring until cancelled, on a connection of its own outside any transaction.

        Raises:
            Unavailable: the connection was lost; listen again.

        """

        def notified(*_: object) -> None:
            heard()

        async with self._connected() as conn:
            try:
                await conn.execution_options(isolation_level="AUTOCOMMIT")
                driver = (await conn.get_raw_connection()).driver_connection
                await driver.add_listener(CHANNEL, notified)  # type: ignore[union-attr]
                while True:
                    await asyncio.sleep(keepalive_seconds)
                    async with asyncio.timeout(keepalive_seconds):
                        await conn.execute(text("SELECT 1"))
            except Exception as error:  # of the driver itself, too
                await asyncio.shield(conn.invalidate())
                raise Unavailable from error

    async def close(self) -> None:
        """Close every pooled connection."""
        await self.engine.dispose()


def sqlstate(error: BaseException) -> str:
    """The five-character SQLSTATE behind an error, or an empty string where there is none."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    for candidate in (origin, getattr(origin, "__cause__", None)):
        state = getattr(candidate, "sqlstate", None) or getattr(candidate, "pgcode", None)
        if state:
            return str(state)
    return ""


def is_lost(error: BaseException) -> bool:
    """Whether the error means that the database is away rather than that the statement was wrong."""
    if isinstance(error, OSError | TimeoutError):
        return True
    if isinstance(error, InterfaceError):
        # The driver says so of a closed connection, but also of a value that it cannot encode: that is our fault.
        return not isinstance(getattr(error.orig, "__cause__", None), ValueError)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return sqlstate(error).startswith(_LOST)


def is_refused(error: BaseException) -> bool:
    """Whether the database, or its driver, will not take a value, however often it is offered."""
    cause = getattr(getattr(error, "orig", None), "__cause__", None)
    return isinstance(cause, ValueError) or sqlstate(error).startswith(_REFUSED)


def is_contended(error: BaseException) -> bool:
    """Whether the transaction lost a deadlock or a serialization race and may simply be run again."""
    return sqlstate(error) in _CONTENDED
