"""Reads who else may tick a job than the holders of its secrets: `[jobs.X.oidc]` and `[jobs.X.bearer]`."""

import re
from ipaddress import ip_address
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service.domain import urls
from service.domain.errors import ConfigurationError
from service.domain.job import BearerConfig, OidcConfig
from service.domain.jsontext import text_fault
from service.domain.jwks import ALGORITHMS
from service.flow.egress import check_url
from service.settings import read_secret

_SHORTEST_TOKEN: Final = 32
_MAX_CHARS: Final = 500
_MAX_SOURCE_BYTES: Final = 100
_GITHUB: Final = "https://token.actions.githubusercontent.com"
_CHECKED_ANYWAY: Final = frozenset({"iss", "aud", "exp", "iat", "nbf"})
_TELLS_NOBODY_APART: Final = frozenset({"email_verified"})
_HEADER: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_NO_RUN_ID: Final = frozenset({
    "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "host",
    "proxy-authorization", "transfer-encoding", "user-agent",
})  # fmt: skip
"""Headers that are secrets, or the same in every request."""


def _url(text: str) -> str:
    check_url(text)
    if not text.startswith("https://") and not (text.startswith("http://") and _is_here(urls.written_host(text))):
        raise ValueError("must begin with https:// (http:// only for a loopback address or localhost, to try it out)")
    return text


def _is_here(host: str) -> bool:
    address = urls.literal(host)
    return host == "localhost" if address is None else ip_address(address).is_loopback


def _issuer(text: str) -> str:
    if "?" in text:
        raise ValueError("must not have a query")
    return _url(text)


def _text(text: str) -> str:
    if fault := text_fault(text, max_bytes=_MAX_CHARS):
        raise ValueError(fault)
    return text


def _source(text: str) -> str:
    if fault := text_fault(text, max_bytes=_MAX_SOURCE_BYTES):
        raise ValueError(fault)
    return text


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _claims(claims: dict[str, object]) -> dict[str, str | int | bool]:
    """The claims, known to be comparable and to tell one caller from another."""
    kept: dict[str, str | int | bool] = {}
    for name, value in claims.items():
        if text_fault(name, max_bytes=_MAX_CHARS):
            raise ValueError("has a claim whose name is empty, too long or not plain text")
        if name in _CHECKED_ANYWAY:
            raise ValueError(f"must not have {name}, which is checked in any case")
        if not isinstance(value, str | int) or (isinstance(value, str) and text_fault(value, max_bytes=_MAX_CHARS)):
            raise ValueError(f"must have a string, a whole number, true or false for {name}")
        kept[name] = value
    if not kept.keys() - _TELLS_NOBODY_APART:
        raise ValueError("must name whose tokens are meant: anybody can get one from a public issuer for any audience")
    return kept


def _algorithm(name: str) -> str:
    if name not in ALGORITHMS:
        raise ValueError(f"must be one of {', '.join(sorted(ALGORITHMS))}")
    return name


def _header(name: str) -> str:
    if not _HEADER.fullmatch(name) or name.lower() in _NO_RUN_ID:
        raise ValueError("must be the name of a header that is another one for each run, such as X-Run-Id")
    return name


class Oidc(BaseModel):
    """One `[jobs.NAME.oidc]` table."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    issuer: Annotated[str, AfterValidator(_issuer)]
    audience: Annotated[list[Annotated[str, AfterValidator(_text)]], BeforeValidator(_listed), Field(min_length=1)]
    claims: Annotated[dict[str, object], AfterValidator(_claims)]
    source: Annotated[str, AfterValidator(_source)] | None = None
    jwks_uri: Annotated[str, AfterValidator(_url)] | None = None
    algorithms: list[Annotated[str, AfterValidator(_algorithm)]] = Field(default=["RS256"], min_length=1)

    @model_validator(mode="after")
    def _github_says_texts(self) -> Self:
        if self.issuer == _GITHUB and not all(isinstance(value, str) for value in self.claims.values()):
            raise ValueError("GitHub's claims are texts, numbers too: put their values in quotes")
        return self

    def read(self, job: str) -> OidcConfig:
        """As the door needs it; runs are named after the job where no `source` is given."""
        return OidcConfig(
            issuer=self.issuer,
            audience=tuple(self.audience),
            claims=_claims(self.claims),
            source=self.source or job,
            algorithms=tuple(self.algorithms),
            jwks_uri=self.jwks_uri,
        )


class Bearer(BaseModel):
    """One `[jobs.NAME.bearer]` table."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    tokens: list[str] = Field(min_length=1)
    run_id_header: Annotated[str, AfterValidator(_header)] | None = None

    def read(self, job: str) -> BearerConfig:
        """With the tokens themselves.

        Raises:
            ConfigurationError: one cannot be read, is too short, or cannot stand in a header.

        """
        tokens = tuple(_token(f'jobs."{job}".bearer.tokens[{at}]', each) for at, each in enumerate(self.tokens))
        return BearerConfig(tokens, self.run_id_header)


def _token(place: str, reference: str) -> bytes:
    try:
        token = read_secret(reference)
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error.detail}") from error
    if not re.fullmatch(rb"[!-~]{%d,%d}" % (_SHORTEST_TOKEN, _MAX_CHARS), token):
        raise ConfigurationError(
            f"{place}: must be {_SHORTEST_TOKEN} to {_MAX_CHARS} visible ASCII characters; make one with "
            "`openssl rand -hex 32`"
        )
    return token
