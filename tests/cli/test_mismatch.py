"""Every mistake that `tocsin sign --explain` knows is recognised from the signature that it leads to."""

import base64
import hashlib
import hmac
import subprocess

import pytest

from service.cli.mismatch import Key, explain

JOB, RUN, CUTOFF = "shipments.expire", "nightly-2026-11-30", "2026-11-30T02:00:00Z"
SECRET = b"correct horse battery"
KEYS = (
    Key(SECRET, reference="env:SHIPMENTS_TICK_SECRET"),
    Key(b"the secret before this one", None),
    Key(b"the other job's secret", "It is made with the secret of job `orders.close`."),
)
RIGHT = f"{RUN}.{CUTOFF}"


def made(message: str = RIGHT, secret: bytes = SECRET, algorithm: str = "sha256") -> bytes:
    """The digest that a scheduler with this mistake arrives at."""
    return hmac.new(secret, message.encode(), algorithm).digest()


MISTAKES = {
    "message ends in a newline": (made(RIGHT + "\n").hex(), "line end: use printf"),
    "message ends in CRLF": (made(RIGHT + "\r\n").hex(), "line end: use printf"),
    "message is joined by a colon": (made(f"{RUN}:{CUTOFF}").hex(), "other than one dot"),
    "message is joined by nothing": (made(RUN + CUTOFF).hex(), "other than one dot"),
    "cutoff comes first": (made(f"{CUTOFF}.{RUN}").hex(), "cutoff is signed first"),
    "only the run id is signed": (made(RUN).hex(), "Only one of"),
    "the job is signed": (made(f"{JOB}.{RIGHT}").hex(), "job's name is signed"),
    "the message is quoted": (made(f'"{RIGHT}"').hex(), "quotes are part of the signed text"),
    "another spelling of the cutoff": (made(f"{RUN}.2026-11-30T02:00:00+00:00").hex(), "Another spelling"),
    "milliseconds in the cutoff": (made(f"{RUN}.2026-11-30T02:00:00.000Z").hex(), "Another spelling"),
    "another offset in the cutoff": (made(f"{RUN}.2026-11-30T03:00:00+01:00").hex(), "Another spelling"),
    "an odd offset in the cutoff": (made(f"{RUN}.2026-11-30T07:45:00+05:45").hex(), "Another spelling"),
    "a space in the cutoff": (made(f"{RUN}.2026-11-30 02:00:00Z").hex(), "Another spelling"),
    "no seconds in the cutoff": (made(f"{RUN}.2026-11-30T02:00Z").hex(), "Another spelling"),
    "the body is signed": (made(f'{{"runId": "{RUN}", "cutoffIso": "{CUTOFF}"}}').hex(), "JSON body is signed"),
    "base64": (base64.b64encode(made()).decode(), "It is base64"),
    "URL-safe base64 without padding": (base64.urlsafe_b64encode(made()).decode().rstrip("="), "It is base64"),
    "base64 of the hex": (base64.b64encode(made().hex().encode()).decode(), "base64 of the hex"),
    "openssl prefix": (f"SHA2-256(stdin)= {made().hex()}", "prefix is still in front"),
    "openssl prefix with HMAC": (f"HMAC-SHA2-256(stdin)= {made().hex()}", "prefix is still in front"),
    "openssl prefix of 1.1": (f"(stdin)= {made().hex()}", "prefix is still in front"),
    "openssl -r without cut": (f"{made().hex()} *stdin", "file name still follows"),
    "openssl -c": (made().hex(":"), "colons between the bytes"),
    "a scheme in front": (f"sha256={made().hex()}", "scheme in front"),
    "Standard Webhooks form": (f"v1,{base64.b64encode(made()).decode()}", "scheme in front"),
    "quotes around it": (f'"{made().hex()}"', "quotes around the signature"),
    "a line end after it": (made().hex() + "\n", "around the signature"),
    "the secret ends in a newline": (made(secret=SECRET + b"\n").hex(), "line end after it: trim"),
    "the secret ends in CRLF": (made(secret=SECRET + b"\r\n").hex(), "line end after it: trim"),
    "the secret is quoted": (made(secret=b'"' + SECRET + b'"').hex(), "quotes around the secret"),
    "the secret is empty": (made(secret=b"").hex(), "secret was empty"),
    "the reference is the secret": (made(secret=b"env:SHIPMENTS_TICK_SECRET").hex(), "reference to the secret"),
    "another job's secret": (made(secret=KEYS[2].secret).hex(), "orders.close"),
    "an empty run id": (made(f".{CUTOFF}").hex(), "run id was empty"),
    "an empty cutoff": (made(f"{RUN}.").hex(), "cutoff was empty"),
    "both empty": (made(".").hex(), "Everything was empty"),
    "seconds since 1970": (made(f"{RUN}.1796004000").hex(), "since 1970"),
    "milliseconds since 1970": (made(f"{RUN}.1796004000000").hex(), "since 1970"),
    "a fraction of seconds since 1970": (made(f"{RUN}.1796004000.0").hex(), "since 1970"),
    "a space after the secret": (made(secret=SECRET + b" ").hex(), "white space around it"),
    "a space and a line end after the secret": (made(secret=SECRET + b" \n").hex(), "white space around it"),
    "SHA-1": (made(algorithm="sha1").hex(), "SHA1; use SHA-256"),
    "SHA-512": (made(algorithm="sha512").hex(), "SHA512; use SHA-256"),
    "key and message swapped": (hmac.new(RIGHT.encode(), SECRET, "sha256").hexdigest(), "swapped"),
    "a hash without a key": (hashlib.sha256(RIGHT.encode()).hexdigest(), "plain hash without a key"),
    "a hash of both": (hashlib.sha256(SECRET + RIGHT.encode()).hexdigest(), "plain hash of secret and message"),
    "two mistakes at once": (f"(stdin)= {made(RIGHT + chr(10)).hex()}", "use printf"),
    "cut short": (made().hex()[:40], "cut short"),
    "something after it": (made().hex() + "ff00", "something after it"),
    "empty": ("", "empty"),
    "no hex": ("ünsinn", "no hex"),
    "unexplained": ("ab" * 32, "No known mistake"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_known_mistake_is_named(mistake: str) -> None:
    supplied, words = MISTAKES[mistake]
    finding = explain(supplied, JOB, RUN, CUTOFF, KEYS)
    assert not finding.matches
    assert words in " ".join(finding.mistakes)


@pytest.mark.parametrize("supplied", [made().hex(), made().hex().upper(), made(secret=KEYS[1].secret).hex()])
def test_a_right_signature_matches_with_any_secret_of_the_job(supplied: str) -> None:
    assert explain(supplied, JOB, RUN, CUTOFF, KEYS).matches


def test_a_secret_in_hex_or_base64_that_was_decoded_first_is_recognised() -> None:
    for text, raw in (
        (b"00112233445566778899aabbccddeeff", bytes.fromhex("00112233445566778899aabbccddeeff")),
        (b"c2l4dGVlbiBieXRlcyBvciBtb3Jl", b"sixteen bytes or more"),
    ):
        finding = explain(made(secret=raw).hex(), JOB, RUN, CUTOFF, [Key(text)])
        assert "decoded from" in " ".join(finding.mistakes)


def test_a_space_that_only_tocsins_own_copy_of_the_secret_has_is_recognised() -> None:
    finding = explain(made().hex(), JOB, RUN, CUTOFF, [Key(SECRET + b" ")])
    assert "Tocsin's own copy" in " ".join(finding.mistakes)


def test_a_run_id_that_was_signed_in_another_form_than_it_was_sent_is_recognised() -> None:
    run_id, decomposed = "n\u00e4chtlich", "na\u0308chtlich"
    finding = explain(made(f"{decomposed}.{CUTOFF}").hex(), JOB, run_id, CUTOFF, KEYS)
    assert "normal form" in " ".join(finding.mistakes)
    escaped = f"n\\u00e4chtlich.{CUTOFF}"
    finding = explain(made(escaped).hex(), JOB, run_id, CUTOFF, KEYS, as_written=escaped)
    assert "escapes of the JSON text" in " ".join(finding.mistakes)


@pytest.mark.parametrize("cutoff", ["0001-01-01T02:00:00Z", "9999-12-31T23:00:00Z", "tomorrow", "2026-11-30T02:00:00"])
def test_a_cutoff_that_has_no_other_spelling_is_no_fault_of_the_explanation(cutoff: str) -> None:
    assert "No known mistake" in " ".join(explain("ab" * 32, JOB, RUN, cutoff, KEYS).mistakes)


def test_no_explanation_shows_a_secret_or_the_right_signature() -> None:
    for supplied, _ in MISTAKES.values():
        said = " ".join(explain(supplied, JOB, RUN, CUTOFF, KEYS).mistakes)
        assert not any(key.secret.decode() in said for key in KEYS)
        assert made().hex() not in said


def test_what_this_openssl_prints_without_cut_is_recognised() -> None:
    command = ("openssl", "dgst", "-sha256", "-hmac", SECRET.decode())
    printed = subprocess.run(command, input=RIGHT.encode(), capture_output=True, check=True).stdout.decode()
    assert "OpenSSL's prefix" in " ".join(explain(printed, JOB, RUN, CUTOFF, KEYS).mistakes)
