"""The settings: environment variables `TOCSIN_…`, checked as a whole before anything starts."""

import base64
import binascii
import os
import re
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.domain.errors import ConfigurationError
from service.domain.leases import longest_attempt

PREFIX = "TOCSIN_"

Network = IPv4Network | IPv6Network
T = TypeVar("T")

_MAX_SECRET_BYTES = 65_536
_FERNET_KEY_BYTES = 32
_SHORTEST_KEY = 16


def read_secret(reference: str) -> bytes:
    """The secret behind `env:NAME` or `file:PATH`, without the line ends that editors and `echo` leave behind it.

    Raises:
        ConfigurationError: the variable is not set, the file cannot be read, there is nothing in it, or the reference
            is neither (it is not shown then, because it may be the secret itself).

    """
    kind, _, where = reference.partition(":")
    if kind not in ("env", "file") or not where:
        raise ConfigurationError("a secret must be given as env:NAME or file:PATH")
    secret = (_variable(where) if kind == "env" else _file(where)).rstrip(b"\r\n")
    if not secret:
        thing = "environment variable" if kind == "env" else "secret file"
        raise ConfigurationError(f"the {thing} {where} is empty: put the secret there")
    return secret


def _variable(name: str) -> bytes:
    if (value := os.environ.get(name)) is None:
        raise ConfigurationError(f"the environment variable {name} is not set: export it")
    return os.fsencode(value)


def _file(path: str) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(_MAX_SECRET_BYTES)
    except OSError as error:
        raise ConfigurationError(f"the secret file {path} cannot be read: {error.strerror}") from error


def _dereferenced(value: Any) -> Any:
    """A secret setting may hold the secret itself, or say where it is."""
    if not isinstance(value, str) or not value.startswith(("env:", "file:")):
        return value
    try:
        return read_secret(value).decode()
    except (ConfigurationError, UnicodeDecodeError) as error:
        raise ValueError(str(error) if isinstance(error, ConfigurationError) else "must be text") from error


def _split(value: Any) -> Any:
    """A comma-separated list; blanks around and empty entries are ignored."""
    if not isinstance(value, str):
        return value
    return tuple(entry for entry in (part.strip() for part in value.split(",")) if entry)


def _each(change: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    return lambda values: tuple(change(value) for value in values)


def _network(value: Any) -> Network:
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    try:
        return ip_network(str(value))
    except ValueError:
        pass
    try:
        meant = ip_network(str(value), strict=False)
    except ValueError:
        raise ValueError("must be comma-separated networks such as 10.0.0.0/8 or fd00::/8") from None
    raise ValueError(f"a network has bits set behind its prefix: write {meant}")


def _fernet_key(key: SecretStr) -> SecretStr:
    try:
        raw = base64.b64decode(key.get_secret_value(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _FERNET_KEY_BYTES:
        raise ValueError(
            "each key must be 32 bytes in URL-safe base64: make one with `openssl rand -base64 32 | tr +/ -_`"
        )
    return key


def _api_key(key: SecretStr) -> SecretStr:
    if not re.fullmatch(rf"[!-~]{{{_SHORTEST_KEY},500}}", key.get_secret_value()):
        raise ValueError("must be at least 16 visible ASCII characters: make one with `openssl rand -hex 32`")
    return key


def _port(value: Any) -> Any:
    if isinstance(value, str) and "://" in value:
        raise ValueError(
            "must be a number; this one comes from Kubernetes, for a Service named tocsin: "
            "set enableServiceLinks: false in the pod, or give the Service another name"
        )
    return value


_TAKEN_OVER = {"ssl", "sslmode", "host", "port", "target_session_attrs", "prepared_statement_cache_size"}
_IGNORED = {"channel_binding", "gssencmode"}
"""Parameters of libpq that asyncpg decides by itself; hosts put them into the URLs they hand out."""


def _has_usable_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def _database_url(url: str) -> str:
    """Any spelling of a PostgreSQL URL, as SQLAlchemy wants it for asyncpg."""
    try:
        parts = urlsplit(url)
    except ValueError:  # Its message repeats the URL, and with it the password.
        parts = urlsplit("")
    if parts.scheme not in {"postgresql", "postgres", "postgresql+asyncpg"}:
        raise ValueError("must be a PostgreSQL URL: postgresql://user:password@host:5432/database")
    if not _has_usable_port(parts):
        raise ValueError("has a port that is no number from 1 to 65535")
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in _IGNORED]
    unknown = sorted({name for name, _ in query} - _TAKEN_OVER)
    if unknown:
        raise ValueError(f"has parameters that cannot be used here, take them out: {', '.join(unknown)}")
    renamed = urlencode([("ssl" if name == "sslmode" else name, value) for name, value in query], safe="/:")
    return urlunsplit(("postgresql+asyncpg", parts.netloc, parts.path, renamed, ""))


def _otlp_endpoint(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not _has_usable_port(parts):
        raise ValueError("must be a URL such as http://collector:4318")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must have no user, query or fragment: put credentials into OTEL_EXPORTER_OTLP_HEADERS")
    return url


Networks = Annotated[tuple[Network, ...], NoDecode, BeforeValidator(_each(_network)), BeforeValidator(_split)]
Keys = Annotated[
    tuple[Annotated[SecretStr, AfterValidator(_fernet_key), BeforeValidator(_dereferenced)], ...],
    NoDecode,
    BeforeValidator(_split),
]


class Settings(BaseSettings):
    """All settings; read from the environment when made.

    Raises:
        ConfigurationError: in one line, every setting that cannot be used, and the mend.

    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    database_url: Annotated[str, AfterValidator(_database_url), BeforeValidator(_dereferenced)] | None = Field(
        None,
        repr=False,
        description="PostgreSQL 15 or newer, `postgresql://user:password@host:5432/database`. "
        "Not set: an embedded PostgreSQL under `TOCSIN_DATA_DIR`.",
    )
    data_dir: Path = Field(Path(".tocsin"), description="Folder of the embedded PostgreSQL and of generated keys.")
    config: Path = Field(
        Path("tocsin.toml"),
        description="The file that declares the jobs. Not set: it may be absent, and there are no jobs; a file that is "
        "named here has to be there.",
    )
    host: str = Field("127.0.0.1", min_length=1, description="Address that the API listens on.")
    port: Annotated[int, BeforeValidator(_port)] = Field(
        8080, ge=0, le=65_535, description="Port that the API listens on; 0 takes a free one."
    )
    bootstrap_key: Annotated[SecretStr, AfterValidator(_api_key), BeforeValidator(_dereferenced)] | None = Field(
        None,
        description="An API key with scope `admin`, for making the first real keys. At least 16 characters. "
        "Not set: `tocsin up` with the embedded PostgreSQL generates one in the data folder.",
    )
    encryption_keys: Keys = Field(
        (),
        description="Fernet keys, comma-separated, that seal subscribers' secrets and the values of their headers in "
        "the database: the first seals, all open. Needed wherever `TOCSIN_DATABASE_URL` is set; otherwise generated in "
        "the data folder.",
    )
    egress_allow: Networks = Field(
        (),
        description="Networks, comma-separated, that deliveries may go to, and keys of identity tokens may be fetched "
        "from, although they are not public.",
    )
    egress_deny: Networks = Field(
        (),
        description="Networks, comma-separated, that neither may ever go to; wins over the allowed ones.",
    )
    lease_seconds: float = Field(
        60,
        ge=1,
        le=3600,
        description="How long a worker owns a delivery or a run; after a worker's death others go on so much later. "
        "A subscriber's `timeoutSeconds` must end well before it.",
    )
    worker_concurrency: int = Field(128, ge=1, le=10_000, description="Requests in flight at once in one worker.")
    claim_batch: int = Field(200, ge=1, le=5_000, description="Most deliveries that one claim takes.")
    drain_seconds: float = Field(
        25, ge=0, le=3600, description="How long a stopping worker waits for what is in flight; the rest is given back."
    )
    shadow: bool = Field(
        default=False,
        description="`true` makes the whole service a shadow: it claims, signs and records, but sends nothing.",
    )
    log_format: Literal["console", "json"] = Field("console", description="`console` or `json`, on stderr.")
    otlp_endpoint: Annotated[str, AfterValidator(_otlp_endpoint)] | None = Field(
        None,
        repr=False,
        description="Where traces are sent by OTLP/HTTP, such as `http://collector:4318`; `/v1/traces` is added. "
        "Not set: nothing is traced. See [tracing](tracing.md).",
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigurationError(_one_line(error)) from None

    @property
    def longest_attempt_seconds(self) -> float:
        """The longest `timeoutSeconds` a subscriber may have: the rest of the lease is for settling."""
        return longest_attempt(self.lease_seconds)

    def check(self) -> None:
        """What must hold before anything is served, beyond each setting by itself.

        Raises:
            ConfigurationError: it does not; `migrate` and `doctor` run all the same.

        """
        if self.database_url is not None and not self.encryption_keys:
            # A generated key would be lost with this machine, while what it sealed lives on in the shared database.
            raise ConfigurationError(
                "TOCSIN_ENCRYPTION_KEYS must be set when TOCSIN_DATABASE_URL is: "
                "make a key with `openssl rand -base64 32 | tr +/ -_` and keep it with your secrets"
            )


def _one_line(error: ValidationError) -> str:
    faults = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        setting = f"{PREFIX}{str(fault['loc'][0]).upper()}: " if fault["loc"] else ""
        message = fault["msg"].removeprefix("Value error, ")
        faults.append(f"{setting}{message[:1].lower() if setting else message[:1]}{message[1:]}")
    return "; ".join(dict.fromkeys(faults))
