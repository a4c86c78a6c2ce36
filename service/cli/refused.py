"""Why a tick was refused, from its body alone: what the API says of it, and what it keeps to itself."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from service.cli.mismatch import Finding, Key, explain
from service.domain import jsontext
from service.domain.errors import Invalid, NotJson
from service.domain.identifiers import MAX_RUN_ID_BYTES
from service.domain.job import JobConfig
from service.domain.patience import in_words
from service.domain.timestamps import parse_rfc3339

MAX_BODY_BYTES: Final = 16 * 1024
"""What the API takes of a tick."""

_FIELDS = ("runId", "cutoffIso", "signature")
_LOGGED = "why one was refused stands in the server's log: `tick.refused`, with `why`."


def judge(body: bytes, job: str, config: JobConfig | None, keys: Sequence[Key], now: datetime) -> Finding:
    """What is wrong with the tick, in sentences: first what hides the signature, then the signature, then the rest.

    `config` is how the server knows the job, None where that is not known here. `now` is compared with the cutoff.
    """
    if unreadable := _unreadable(body):
        unsigned = () if b"signature" in body else (_unsigned(config),)
        return Finding(matches=False, mistakes=(unreadable, *unsigned))
    members, sources = jsontext.parse_object(body)
    if misnamed := tuple(_misnamed(members)):
        unsigned = () if {"cutoffIso", "signature"} <= members.keys() else (_unsigned(config),)
        return Finding(matches=False, mistakes=(*misnamed, *unsigned))
    if config and not any(key.whose is None for key in keys):
        return Finding(matches=False, mistakes=("The job has no tick secret.", _unsigned(config)))
    run_id, cutoff, signature = (str(members[name]) for name in _FIELDS)
    as_written = f"{sources['runId'][1:-1]}.{sources['cutoffIso'][1:-1]}"
    finding = explain(signature, job, run_id, cutoff, keys, as_written=as_written)
    if not finding.matches:
        return Finding(matches=False, mistakes=("The signature does not match.", *finding.mistakes))
    rest = tuple(_refused_all_the_same(members, run_id, cutoff, config, now))
    return Finding(not rest, ("The signature matches, but the tick is refused all the same.", *rest) if rest else ())


def _unreadable(body: bytes) -> str | None:
    """Why the body is no JSON object that the API would look into; None when it is one."""
    if len(body) > MAX_BODY_BYTES:
        return f"The body is larger than the {MAX_BODY_BYTES} bytes that a tick may have."
    try:
        jsontext.parse_object(body)
    except NotJson:
        return _no_json(body)
    except Invalid as fault:
        if body.lstrip()[:1] == b'"':
            return "The JSON is encoded twice: the body is a text that holds the object, not the object."
        places = "; ".join(f"{each.pointer or '/'} {each.detail}" for each in fault.problems)
        return f"The body is JSON that the API does not take: {places}."
    return None


def _no_json(body: bytes) -> str:
    start = body.lstrip()
    marks: dict[str, bool] = {
        "The body is empty.": not start,
        "The body begins with a byte order mark; send plain UTF-8.": start.startswith(b"\xef\xbb\xbf"),
        "The body is in UTF-16; send UTF-8.": start.startswith((b"\xff\xfe", b"\xfe\xff")),
        "The body is a form, not JSON.": start.startswith((b"runId=", b"cutoffIso=", b"signature=")),
        "The body has quotes around it that belong to a shell.": start.startswith(b"'"),
        "The body has single quotes where JSON has double ones.": start.startswith(b"{'"),
        "The body has lost its quotes: put the JSON into single quotes in the shell.": start.startswith(b"{runId"),
        "The body has backslashes before its quotes, which belong to a shell.": start.startswith(b'{\\"'),
        "The body is cut short: its last brace is missing.": b"}" not in start,
    }
    found = next((mistake for mistake, fits in marks.items() if fits), "")
    return f"The body is no JSON. {found}".strip()


def _misnamed(members: Mapping[str, object]) -> Iterator[str]:
    """What keeps the signature from being looked at: a field that is not there, or is no text."""
    near = {"".join(filter(str.isalpha, name)).lower(): name for name in members if name not in _FIELDS}
    others = {"runId": ("runid", "run", "id"), "cutoffIso": ("cutoffiso", "cutoff"), "signature": ("sig", "hmac")}
    for name in _FIELDS:
        if name in members:
            if not isinstance(members[name], str):
                yield f"{name} must be a text, in quotes."
            continue
        meant = next((near[other] for other in (name.lower(), *others[name]) if other in near), None)
        hint = f": is it the one that is called {meant}?" if meant else "."
        yield f"There is no {name}{hint}"


def _unsigned(config: JobConfig | None) -> str:
    """What there is to say of a tick that was not meant to be signed: whether the job takes a token in its place."""
    if config is None:
        return (
            f"A tick without a signature needs a token in its Authorization header, and a job that takes it; {_LOGGED}"
        )
    kinds = [kind for kind, taken in (("an identity", config.oidc), ("a static", config.bearer)) if taken]
    if not kinds:
        return "The job takes no tokens, so every tick of it has to be signed."
    return (
        f"The job takes callers with {' or '.join(kinds)} token in their Authorization header. Such a caller needs "
        f"neither signature nor cutoffIso, and nothing about it can be judged here; {_LOGGED}"
    )


def _refused_all_the_same(
    members: Mapping[str, object], run_id: str, cutoff: str, config: JobConfig | None, now: datetime
) -> Iterator[str]:
    """What is wrong with a tick whose signature is right."""
    if fault := jsontext.text_fault(run_id, max_bytes=MAX_RUN_ID_BYTES):
        yield f"runId {fault}."
    try:
        age = (now - parse_rfc3339(cutoff)).total_seconds()
    except ValueError as fault:
        yield f"cutoffIso {fault}."
    else:
        yield from _out_of_range(age, config)
    if unknown := len(members.keys() - {*_FIELDS}):
        yield f"It has {unknown} more field{'s' * (unknown > 1)} than runId, cutoffIso and signature."


def _out_of_range(age: float, config: JobConfig | None) -> Iterator[str]:
    """What the job does not take of a cutoff that is so many seconds old, or lies ahead where that is negative."""
    bounds = config or JobConfig(name="", source="")
    whose = "the job's" if config else "the usual"
    if age > bounds.max_cutoff_age:
        yield (
            f"By this machine's clock the cutoff is {in_words(age)} old, and {whose} max_cutoff_age is "
            f"{bounds.max_cutoff_age} s. Where every tick has this cutoff, the body was written down once: each slot "
            "needs a body of its own."
        )
    if -age > bounds.max_cutoff_ahead:
        yield (
            f"By this machine's clock the cutoff is {in_words(-age)} ahead, and {whose} max_cutoff_ahead is "
            f"{bounds.max_cutoff_ahead} s."
        )
