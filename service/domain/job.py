"""A job as `tocsin.toml` declares it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One job: where its due work is found, and who may tick it. Durations are seconds.

    `secrets` are the bytes that ticks are signed with; all of them are accepted, so that one can be rotated.
    `options` is handed as it is to a source that this project does not know.
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
