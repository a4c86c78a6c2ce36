"""Where the tick commands find a job's secret: the option --secret, else the job in tocsin.toml."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from service.cli.mismatch import Key
from service.cli.options import secret_from
from service.config import configured_jobs
from service.domain.errors import ConfigurationError
from service.domain.job import JobConfig
from service.settings import Settings

_METAVAR = "env:NAME|file:PATH|-"
_MEANING = "The job's tick secret, - reads it from stdin; without it, the job's first secret in tocsin.toml"

Secret = Annotated[str | None, typer.Option("--secret", metavar=_METAVAR, help=f"{_MEANING}.")]
SecretOrAll = Annotated[
    str | None, typer.Option("--secret", metavar=_METAVAR, help=f"{_MEANING}, and with --explain all of them.")
]


def signing_secret(job: str, reference: str | None) -> bytes:
    """The secret that a new tick is signed with.

    Raises:
        ConfigurationError: there is none to be found; the message says where one may stand.

    """
    if reference is not None:
        return _given(reference)
    config = _configured(job)
    if not config.secrets:
        detail = f"the job {job!r} has no tick secret: its schedulers show tokens, and there is nothing to sign with."
        raise ConfigurationError(detail)
    return config.secrets[0]


def known_job(job: str, reference: str | None) -> JobConfig | None:
    """The job as it is configured; None where the caller named a secret and the configuration cannot be read here.

    Raises:
        ConfigurationError: there is no such job, and no secret was named either.

    """
    if reference is None:
        return _configured(job)
    return _readable_jobs().get(job)


def known_keys(job: str, reference: str | None) -> list[Key]:
    """Every secret that a signature may have been made with: the job's own first, then those of other jobs.

    Raises:
        ConfigurationError: the configuration cannot be read, and no secret was named either.

    """
    if reference is not None:
        return [Key(_given(reference), reference=reference), *_of_others(job)]
    config = _configured(job)
    references = _references(Settings().config, job)
    own = [Key(secret, reference=where) for secret, where in zip(config.secrets, references, strict=True)]
    return [*own, *_of_others(job)]


def _given(reference: str) -> bytes:
    secret = secret_from(reference)
    if not secret:
        detail = "the secret that --secret names is empty: nothing was written to stdin."
        raise ConfigurationError(detail)
    return secret


def _configured(job: str) -> JobConfig:
    settings = Settings()
    config = configured_jobs(settings).get(job)
    if config is None:
        detail = (
            f"there is no job {job!r} in {settings.config}: name the file with TOCSIN_CONFIG, "
            "or the secret with --secret env:NAME or file:PATH."
        )
        raise ConfigurationError(detail)
    return config


def _readable_jobs() -> Mapping[str, JobConfig]:
    """What is configured; nothing where that cannot be read here: the file may well belong to another machine."""
    try:
        return configured_jobs(Settings())
    except ConfigurationError:
        return {}


def _of_others(job: str) -> list[Key]:
    """The secrets of the other jobs, as far as the configuration can be read here."""
    return [
        Key(secret, f"It is made with the secret of the job {other.name}.")
        for other in _readable_jobs().values()
        if other.name != job
        for secret in other.secrets
    ]


def _references(path: Path, job: str) -> list[str]:
    """How the file refers to the job's secrets; `configured_jobs` has found it in order."""
    references: list[str] = tomllib.loads(path.read_text(encoding="utf-8"))["jobs"][job].get("secrets", [])
    return references
