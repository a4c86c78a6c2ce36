"""Verifies the identity token that a scheduler sends with a tick, against what its job asks for."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from jwt import PyJWK
from jwt.api_jws import PyJWS
from jwt.exceptions import PyJWTError

from service.domain import tokens
from service.domain.job import OidcConfig
from service.domain.jwks import Key
from service.domain.tokens import TokenRefused
from service.flow.egress import Egress
from service.flow.issuers import Issuers

__all__ = ["TokenRefused", "Tokens"]

_SIGNATURES: Final = PyJWS()


class Tokens:
    """Verifies tokens with the keys of their issuers.

    `now` is the clock that tokens are judged by, in seconds since 1970; `elapsed` the one that keys age by.
    """

    def __init__(
        self, egress: Egress, *, now: Callable[[], float] = time.time, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare; nothing is fetched before the first token that could be a good one."""
        self._now = now
        self._issuers = Issuers(egress, elapsed=elapsed)

    async def verify(self, token: str, wanted: OidcConfig) -> Mapping[str, object]:
        """The claims of a token that is what is wanted.

        Raises:
            TokenRefused: it is not; the caller learns nothing more, the log gets `why`.
            Unavailable: it looks right, but its issuer is away and none of its keys was ever fetched.

        """
        told = tokens.read(token)
        key_id = tokens.judge(told, wanted, self._now())
        key = await self._issuers.key(wanted, key_id, told.algorithm)
        _check_signature(token, key, told.algorithm)
        return told.claims

    async def close(self) -> None:
        """Give up what is being fetched."""
        await self._issuers.close()


def _check_signature(token: str, key: Key, algorithm: str) -> None:
    """Hold the signature against the key, by an algorithm that the configuration allows and the key fits.

    Raises:
        TokenRefused: it was not made with that key, or the key is none.

    """
    try:
        public = PyJWK({**key.parts}, algorithm)
        _SIGNATURES.decode_complete(token, public, algorithms=[algorithm])
    except PyJWTError:
        raise TokenRefused("signature") from None
