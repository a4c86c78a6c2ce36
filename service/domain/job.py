"""A job as `tocsin.toml` declares it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """Whose tokens may tick a job: the issuer, for whom they are made, and what else they must say.

    `claims` are compared exactly, type included; there is at least one, because anybody can get a token for any
    audience from a public issuer. `source` begins the run ids that Tocsin makes itself. Without `jwks_uri` the address
    of the keys is read from the issuer's discovery document.
    """

    issuer: str
    audience: tuple[str, ...]
    claims: Mapping[str, str | int | bool]
    source: str
    algorithms: tuple[str, ...] = ("RS256",)
    jwks_uri: str | None = None


@dataclass(frozen=True, slots=True)
class BearerConfig:
    """The static tokens that may tick a job; they sign nothing, and whoever sees one can use it.

    All of `tokens` are accepted, so that one can be rotated. The run id stands in the header `run_id_header`, or in
    the body where there is none configured.
    """

    tokens: tuple[bytes, ...] = field(repr=False)
    run_id_header: str | None = None


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One job: where its due work is found, and who may tick it. Durations are seconds.

    `secrets` are the bytes that ticks are signed with; all of them are accepted, so that one can be rotated. There may
    be none where `oidc` or `bearer` says who else may tick. `options` are the source's own (see `domain.retention`) and
    handed as they are to one that this project does not know.
    """

    name: str
    source: str
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    event_type: str | None = None
    page_size: int = 500
    statement: str | None = None
    statement_timeout_seconds: float = 30.0
    max_cutoff_ahead: int = 60
    max_cutoff_age: int = 604_800
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    oidc: OidcConfig | None = None
    bearer: BearerConfig | None = None
