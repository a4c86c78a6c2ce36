"""Who is calling, and what they may do."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.domain.errors import Forbidden, Unauthenticated
from service.domain.model import Scope
from service.web.keyring import Actor
from service.web.state import State

BEARER = HTTPBearer(auto_error=False, scheme_name="apiKey", description="An API key: `tocsin keys create` makes one.")


def allow(scope: Scope) -> Callable[..., Awaitable[Actor]]:
    """A dependency that lets holders of keys with at least this scope through.

    Raises:
        Unauthenticated: there is no good key.
        Forbidden: its scope is too small.

    """

    async def allowed(
        state: State, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]
    ) -> Actor:
        if credentials is None:
            raise Unauthenticated
        house = state.runtime
        actor = await state.keyring.actor(house.db, house.settings.bootstrap_key, credentials.credentials)
        if not actor.scope.includes(scope):
            raise Forbidden
        return actor

    return allowed


Reader = Annotated[Actor, Depends(allow(Scope.READ))]
