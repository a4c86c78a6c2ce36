"""What the tests of tokens share: a clock that stands still, an issuer, and a verifier that lets it be called."""

from collections.abc import AsyncIterator

import pytest

from service.flow.tokens import Tokens
from tests.flow.egress_parts import loopback
from tests.issuers import Clock, Issuer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def issuer(clock: Clock) -> AsyncIterator[Issuer]:
    async with Issuer(now=clock) as local:
        yield local


@pytest.fixture
async def verifier(clock: Clock) -> AsyncIterator[Tokens]:
    egress = loopback()
    verifying = Tokens(egress, now=clock, elapsed=clock)
    yield verifying
    await verifying.close()
    await egress.close()
