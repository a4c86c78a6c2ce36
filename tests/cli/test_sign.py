"""`tocsin sign`: the signature alone on stdout; with --explain, what is wrong with a tick."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.cli.refused import MAX_BODY_BYTES
from service.domain.signing import tick_signature
from service.domain.timestamps import format_rfc3339
from service.web.bodies import TICK_BYTES
from tests.cli import inside
from tests.cli.process import Done

JOB, RUN, CUTOFF = "shipments.expire", "nightly", "2026-11-30T02:00:00Z"
SECRET, OTHER = "the secret of the shipments", "the secret of the orders"
CONFIG = """
[jobs."shipments.expire"]
source = "tick"
event_type = "a"
secrets = ["env:SHIPMENTS"]
[jobs."orders.close"]
source = "tick"
event_type = "b"
secrets = ["env:ORDERS"]
"""
TOKENS_ONLY = """
[jobs."reports.build"]
source = "tick"
event_type = "c"
[jobs."reports.build".bearer]
tokens = ["env:REPORTS"]
"""
TAKES_TOKENS = """
[jobs."shipments.expire".bearer]
tokens = ["env:REPORTS"]
[jobs."shipments.expire".oidc]
issuer = "https://issuer.example.com"
audience = "tocsin"
claims = { sub = "scheduler" }
"""
RIGHT = tick_signature(SECRET.encode(), RUN, CUTOFF)
NOW = format_rfc3339(datetime.now(UTC).replace(microsecond=0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tocsin.toml").write_text(CONFIG)
    return tmp_path


def sign(folder: Path, *arguments: str, stdin: bytes = b"") -> Done:
    env = {"SHIPMENTS": SECRET, "ORDERS": OTHER, "REPORTS": "t" * 32, "TOCSIN_CONFIG": str(folder / "tocsin.toml")}
    return inside.run("sign", JOB, *arguments, env=env, stdin=stdin)


def tick(cutoff: str = NOW, run_id: str = RUN, secret: str = SECRET, **changes: object) -> str:
    """The body of a tick; what is None is left out."""
    signature = tick_signature(secret.encode(), run_id, cutoff)
    fields = {"runId": run_id, "cutoffIso": cutoff, "signature": signature, **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def test_the_signature_of_the_configured_secret_is_all_that_is_printed(folder: Path) -> None:
    done = sign(folder, RUN, CUTOFF)
    assert (done.code, done.out, done.err) == (0, RIGHT + "\n", "")


def test_a_secret_from_stdin_loses_its_line_end(folder: Path) -> None:
    assert sign(folder, RUN, CUTOFF, "--secret", "-", stdin=SECRET.encode() + b"\r\n").out == RIGHT + "\n"


def test_a_tick_with_nothing_wrong_is_exit_code_0_wherever_it_comes_from(folder: Path) -> None:
    file = folder / "tick.json"
    file.write_text(tick())
    for done in (
        sign(folder, "--explain", tick()),
        sign(folder, "--explain", str(file)),
        sign(folder, "--explain", "-", stdin=tick().encode() + b"\n"),
        sign(folder, "--explain", "-", "--secret", "env:SHIPMENTS", stdin=tick().encode()),
    ):
        assert (done.code, "Nothing is wrong" in done.out) == (0, True), done.out + done.err
        assert "409" in done.out


WRONG = {
    "another job's secret": (tick(secret=OTHER), "the job orders.close"),
    "the reference as the secret": (tick(secret="env:SHIPMENTS"), "reference to the secret"),
    "openssl's prefix": (tick(signature=f"SHA2-256(stdin)= {tick_signature(SECRET.encode(), RUN, NOW)}"), "prefix"),
    "a trailing newline": (tick(signature=tick_signature(SECRET.encode(), RUN, NOW + "\n")), "use printf"),
    "a cutoff that was written anew": (
        tick(signature=tick_signature(SECRET.encode(), RUN, NOW.replace("Z", "+00:00"))),
        "Another spelling of the cutoff",
    ),
    "escapes that were signed": (
        tick(run_id="nächtlich", signature=tick_signature(SECRET.encode(), r"n\u00e4chtlich", NOW)),
        "escapes of the JSON text",
    ),
    "no signature": (tick(signature=None), "takes no tokens, so every tick"),
    "a field of another name": (tick(cutoffIso=None, cutOff=NOW), "the one that is called cutOff"),
    "a number": (tick(runId=7), "runId must be a text"),
    "a field too many": (tick(job=JOB), "1 more field than"),
    "no offset": (tick("2026-11-30T02:00:00"), "RFC 3339 with an offset"),
    "an old cutoff": (tick("2020-01-01T00:00:00Z"), "written down once"),
    "a cutoff ahead": (tick(format_rfc3339(datetime.now(UTC) + timedelta(hours=2))), "max_cutoff_ahead is 60 s"),
    "a duplicate field": (tick()[:-1] + ', "runId": "other"}', "JSON that the API does not take"),
    "JSON in JSON": (json.dumps(tick()), "encoded twice"),
    "single quotes": (tick().replace('"', "'"), "single quotes"),
    "a shell's quotes": (f"'{tick()}'", "belong to a shell"),
    "lost quotes": (tick().replace('"', ""), "lost its quotes"),
    "cut short": (tick()[:-20], "cut short"),
    "too large": (tick(signature="a" * 20_000), "larger than"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_what_is_wrong_is_said_with_exit_code_1_and_without_the_secret(folder: Path, mistake: str) -> None:
    body, words = WRONG[mistake]
    done = sign(folder, "--explain", body)
    assert done.code == 1
    assert words in done.out
    assert SECRET not in done.out + done.err
    assert tick_signature(SECRET.encode(), RUN, NOW) not in done.out


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"runId=nightly&cutoffIso=now", "a form"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (tick().encode("utf-16"), "UTF-16"),
        (b"\xff\x00\x9c", "no JSON"),
    ],
)
def test_a_body_that_is_no_json_is_told_what_it_looks_like(folder: Path, body: bytes, words: str) -> None:
    done = sign(folder, "--explain", "-", stdin=body)
    assert (done.code, words in done.out) == (1, True), done.out


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (RUN,),
        (RUN, CUTOFF, "--explain", tick()),
        ("--explain", "no-such-file.json"),
        ("--explain", "-", "--secret", "-"),
    ],
)
def test_there_is_one_way_to_sign_and_one_to_explain(folder: Path, arguments: tuple[str, ...]) -> None:
    assert sign(folder, *arguments).code == 2


def test_a_job_without_a_secret_says_that_there_is_nothing_to_sign_with(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text(TOKENS_ONLY)
    env = {"REPORTS": "a static token of at least 32 characters".replace(" ", "-")}
    env["TOCSIN_CONFIG"] = str(tmp_path / "tocsin.toml")
    done = inside.run("sign", "reports.build", RUN, CUTOFF, env=env)
    assert (done.code, "nothing to sign with" in done.err) == (1, True), done.err
    done = inside.run("sign", "reports.build", "--explain", tick(), env=env)
    assert (done.code, "has no tick secret" in done.out) == (1, True), done.err


@pytest.mark.parametrize(
    "body",
    [tick(signature=None), tick(cutoffIso=None), '{"runId": "nightly"}', "{}", ""],
    ids=["no signature", "no cutoff", "a run id", "an empty object", "nothing"],
)
def test_a_caller_that_shows_a_token_is_told_that_it_needs_no_signature(folder: Path, body: str) -> None:
    (folder / "tocsin.toml").write_text(CONFIG + TAKES_TOKENS)
    done = sign(folder, "--explain", "-", stdin=body.encode())
    assert done.code == 1
    assert "an identity or a static token in their Authorization header" in done.out
    assert "neither signature nor cutoffIso" in done.out
    assert "`tick.refused`, with `why`" in done.out


def days_ago(days: float) -> str:
    return format_rfc3339(datetime.now(UTC).replace(microsecond=0) - timedelta(days=days))


@pytest.mark.parametrize(
    ("bound", "days", "words"),
    [
        ("max_cutoff_age = 2592000", 20, ""),
        ("max_cutoff_age = 2592000", 31, "31 days old, and the job's max_cutoff_age is 2592000 s"),
        ("max_cutoff_age = 3600", 20 / 24, "20 hours old, and the job's max_cutoff_age is 3600 s"),
        ("max_cutoff_ahead = 7200", -1 / 24, ""),
        ("max_cutoff_ahead = 7200", -1, "max_cutoff_ahead is 7200 s"),
    ],
)
@pytest.mark.parametrize("secret", [(), ("--secret", "env:SHIPMENTS")], ids=["configured", "given"])
def test_a_cutoff_is_judged_by_the_bounds_of_its_job(
    folder: Path, bound: str, days: float, words: str, secret: tuple[str, ...]
) -> None:
    (folder / "tocsin.toml").write_text(CONFIG.replace('event_type = "a"', f'event_type = "a"\n{bound}'))
    done = sign(folder, "--explain", tick(days_ago(days)), *secret)
    assert (done.code, words in done.out) == (1 if words else 0, True), done.out + done.err


def test_without_a_configuration_the_usual_bounds_count(folder: Path) -> None:
    env = {"SHIPMENTS": SECRET, "TOCSIN_CONFIG": str(folder / "nowhere.toml")}
    for body, words in ((tick(days_ago(8)), "the usual max_cutoff_age"), (tick(signature=None), "needs a token")):
        done = inside.run("sign", JOB, "--explain", body, "--secret", "env:SHIPMENTS", env=env)
        assert (done.code, words in done.out) == (1, True), done.out + done.err


@pytest.mark.parametrize("cutoff", ["yesterday", "2026-11-30T02:00:00", "1796004000", "2026-11-31T02:00:00Z", ""])
def test_a_cutoff_that_is_never_taken_is_not_signed(folder: Path, cutoff: str) -> None:
    done = sign(folder, RUN, cutoff)
    assert (done.code, done.out) == (2, "")
    assert "RFC 3339" in done.err
    assert "never taken" in " ".join(done.err.split())


def test_a_body_is_too_large_here_where_it_is_too_large_there() -> None:
    assert MAX_BODY_BYTES == TICK_BYTES
