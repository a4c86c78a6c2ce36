"""Questions to the database that may not take long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.domain.errors import Unavailable
from service.store.database import Database, Tx

READ_SECONDS = 10.0


@asynccontextmanager
async def reading(db: Database) -> AsyncIterator[Tx]:
    """A transaction for one question.

    Raises:
        Unavailable: the database is away, or had no answer within READ_SECONDS.

    """
    try:
        async with asyncio.timeout(READ_SECONDS), db.begin() as tx:
            yield tx
    except TimeoutError:
        message = f"The database had no answer within {READ_SECONDS:g} s: ask again, or for less."
        raise Unavailable(message) from None
