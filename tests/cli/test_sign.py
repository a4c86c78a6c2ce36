"""`tocsin sign`: the signature alone on stdout; with --expect, an explanation."""

from pathlib import Path

import pytest

from service.domain.signing import tick_signature
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
RIGHT = tick_signature(SECRET.encode(), RUN, CUTOFF)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tocsin.toml").write_text(CONFIG)
    return tmp_path


def sign(folder: Path, *arguments: str, stdin: bytes = b"") -> Done:
    env = {"SHIPMENTS": SECRET, "ORDERS": OTHER, "TOCSIN_CONFIG": str(folder / "tocsin.toml")}
    return inside.run("sign", JOB, RUN, CUTOFF, *arguments, env=env, stdin=stdin)


def test_the_signature_of_the_configured_secret_is_all_that_is_printed(folder: Path) -> None:
    done = sign(folder)
    assert (done.code, done.out, done.err) == (0, RIGHT + "\n", "")


def test_a_secret_from_stdin_loses_its_line_end(folder: Path) -> None:
    assert (sign(folder, "--secret", "-", stdin=SECRET.encode() + b"\r\n")).out == RIGHT + "\n"


def test_a_matching_signature_is_exit_code_0_also_from_a_pipe(folder: Path) -> None:
    assert (sign(folder, "--expect", RIGHT.upper())).code == 0
    assert (sign(folder, "--expect", "-", stdin=RIGHT.encode() + b"\n")).code == 0


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (tick_signature(OTHER.encode(), RUN, CUTOFF), "the job orders.close"),
        (tick_signature(b"env:SHIPMENTS", RUN, CUTOFF), "reference to the secret"),
        (f"SHA2-256(stdin)= {RIGHT}", "OpenSSL's prefix"),
    ],
)
def test_a_mismatch_is_explained_with_exit_code_1(folder: Path, expected: str, words: str) -> None:
    done = sign(folder, "--expect", expected)
    assert done.code == 1
    assert words in done.out
    assert SECRET not in done.out + done.err
    assert RIGHT not in done.out.replace(expected, "")
