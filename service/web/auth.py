"""Who is calling, and what they may do."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Security
from fastapi.dependencies.models import Dependant
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.domain.errors import Forbidden, Unauthenticated
from service.domain.model import Scope
from service.web.keyring import Actor
from service.web.state import State

BEARER = HTTPBearer(auto_error=False, scheme_name="apiKey", description="An API key: `tocsin keys create` makes one.")


@dataclass(frozen=True, slots=True)
class Allow:
    """A dependency that lets holders of keys with at least this scope through; the document reads the scope off it."""

    scope: Scope

    async def __call__(
        self, state: State, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]
    ) -> Actor:
        """The holder of the key.

        Raises:
            Unauthenticated: there is no good key.
            Forbidden: its scope is too small; the message names both.

        """
        if credentials is None:
            raise Unauthenticated
        house = state.runtime
        actor = await state.keyring.actor(house.db, house.settings.bootstrap_key, credentials.credentials)
        if not actor.scope.includes(self.scope):
            raise Forbidden(f"This needs the scope `{self.scope.value}`; this key has `{actor.scope.value}`.")
        return actor


def scope_of(dependant: Dependant) -> Scope | None:
    """The scope that a route's dependencies ask for; None where it asks for no key."""
    if isinstance(dependant.call, Allow):
        return dependant.call.scope
    found = [scope for each in dependant.dependencies if (scope := scope_of(each))]
    return max(found, key=list(Scope).index, default=None)


Reader = Annotated[Actor, Depends(Allow(Scope.READ))]
