"""Reads `tocsin.toml`: the jobs, and where their secrets are."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from service.config_callers import Bearer, Oidc
from service.domain.errors import ConfigurationError
from service.domain.identifiers import is_event_type, is_job_name, is_reserved_type
from service.domain.job import JobConfig
from service.domain.retention import check_together
from service.settings import PREFIX, Settings, read_secret

log = structlog.get_logger(__name__)

_SHORTEST_SECRET = 16
_DAY = 86_400

_OF_THE_COMMANDS = {f"{PREFIX}URL", f"{PREFIX}API_KEY", f"{PREFIX}DEMO_EXIT"}
_REFERENCE = re.compile(rf"\benv:({PREFIX}\w+)")
_SERVICE_LINK = re.compile(rf"{PREFIX}(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)")


def _event_type(text: str) -> str:
    if not is_event_type(text):
        raise ValueError(
            "must be words of letters, digits, hyphens or underscores joined by dots, up to 128 characters"
        )
    if is_reserved_type(text):
        raise ValueError("must not begin with tocsin., which is kept for Tocsin's own events")
    return text


class _Job(BaseModel):
    """One `[jobs.NAME]` table."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    source: str
    secrets: list[str] = Field(default_factory=list, min_length=1)
    event_type: Annotated[str, AfterValidator(_event_type)] | None = None
    page_size: int = Field(500, ge=1, le=5_000)
    statement: str | None = None
    statement_timeout_seconds: float = Field(30, gt=0, le=3600)
    max_cutoff_ahead: int = Field(60, ge=0, le=_DAY)
    max_cutoff_age: int = Field(7 * _DAY, ge=60, le=366 * _DAY)
    options: dict[str, object] = Field(default_factory=dict)
    oidc: Oidc | None = None
    bearer: Bearer | None = None


class _File(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    jobs: dict[str, _Job] = Field(default_factory=dict)


def configured_jobs(settings: Settings) -> dict[str, JobConfig]:
    """The jobs of these settings; only the file that nobody named may be absent.

    Raises:
        ConfigurationError: as for `load_jobs`, or TOCSIN_CONFIG names a file that is not there.

    """
    return load_jobs(settings.config, named="config" in settings.model_fields_set)


def load_jobs(path: Path, *, named: bool = False) -> dict[str, JobConfig]:
    """The jobs by name; none, with a warning, when there is no such file and nobody `named` it.

    Raises:
        ConfigurationError: the file is not TOML, has an unknown or wrong key, nobody can tick a job, or a secret is
            missing, too short, or shared by two jobs.

    """
    try:
        raw = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if named:
            raise ConfigurationError(
                f"TOCSIN_CONFIG names {path}, which is not there: correct it, or unset it where there are no jobs"
            ) from None
        log.warning("config.absent", path=str(path), effect="there are no jobs, every tick will be refused")
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{path} cannot be read: {why}") from error
    try:
        file = _File.model_validate(tomllib.loads(raw))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {_one_line(error)}") from None
    try:
        jobs = {name: _job(name, job) for name, job in file.jobs.items()}
        _check_unshared(jobs)
        check_together(jobs)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.detail}") from error
    return jobs


def _job(name: str, job: _Job) -> JobConfig:
    if not is_job_name(name):
        raise ConfigurationError(
            'the name of a job must be up to 100 of a-z, 0-9, ".", "-", "_" and begin with a letter or digit'
        )
    if not (job.secrets or job.oidc or job.bearer):
        raise ConfigurationError(
            f'jobs."{name}": needs secrets, or a table oidc or bearer: without one of them nobody can tick it'
        )
    credentials = {
        "secrets": tuple(_secret(name, at, reference) for at, reference in enumerate(job.secrets)),
        "oidc": job.oidc.read(name) if job.oidc else None,
        "bearer": job.bearer.read(name) if job.bearer else None,
    }
    return JobConfig(name=name, **(dict(job) | credentials))


def _secret(name: str, at: int, reference: str) -> bytes:
    try:
        secret = read_secret(reference)
    except ConfigurationError as error:
        raise ConfigurationError(f'jobs."{name}".secrets[{at}]: {error.detail}') from error
    if len(secret) < _SHORTEST_SECRET:
        raise ConfigurationError(
            f'jobs."{name}".secrets[{at}]: shorter than {_SHORTEST_SECRET} bytes; make one with `openssl rand -hex 32`'
        )
    return secret


def _check_unshared(jobs: dict[str, JobConfig]) -> None:
    """A tick's signature does not name its job, so that a shared secret would let one job's tick start another.

    Nor may a token be a secret: what signs must never go over the wire.
    """
    owners: dict[bytes, str] = {}
    for job in jobs.values():
        held = dict.fromkeys(job.bearer.tokens if job.bearer else (), f'jobs."{job.name}".bearer')
        for secret, place in [*dict.fromkeys(job.secrets, f'jobs."{job.name}"').items(), *held.items()]:
            owner = owners.setdefault(secret, place)
            if owner != place:
                raise ConfigurationError(f"{owner} and {place} have the same secret: give each one of its own")


def _one_line(error: ValidationError) -> str:
    return "; ".join(
        f"{_place(fault['loc'])}: {fault['msg'].removeprefix('Value error, ')}"
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    )


def _place(location: tuple[int | str, ...]) -> str:
    """`jobs."a.b".page_size`: as one would write it in the file."""
    words = [f'"{part}"' if at == 1 else str(part) for at, part in enumerate(location)]
    return ".".join(words)


def strays(settings: Settings, environment: Mapping[str, str]) -> dict[str, str | None]:
    """Variables that look like settings and are none, each with the setting that it may have been meant for.

    A variable that another setting or the jobs' file refers to (`env:NAME`) is somebody's secret and no stray, and so
    is none what Kubernetes sets for a Service of the name tocsin.
    """
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | _OF_THE_COMMANDS
    try:
        jobs = settings.config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        jobs = ""
    known.update(_REFERENCE.findall("\n".join([jobs, *environment.values()])))
    unknown = sorted(
        name
        for name in environment
        if name.upper().startswith(PREFIX) and name.upper() not in known and not _SERVICE_LINK.fullmatch(name)
    )
    return {name: _nearest(name.upper(), known) for name in unknown}


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """Of the known names the one most like it; what all begin with says nothing."""
    ends = [each.removeprefix(PREFIX) for each in known]
    found = difflib.get_close_matches(name.removeprefix(PREFIX), ends, n=1, cutoff=0.45)
    return PREFIX + found[0] if found else None
