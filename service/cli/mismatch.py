"""Why a tick's signature does not match: tries the mistakes that people make, here and never in an HTTP answer."""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from unicodedata import normalize

from service.domain.timestamps import parse_rfc3339

_HEX_LENGTH = 64
_BARE_HEX = re.compile(r"[0-9a-fA-F]{64}")
_OPENSSL_PREFIX = re.compile(r"\S*\(\S*\)= ?(?P<rest>\S+)")
_OPENSSL_SUFFIX = re.compile(r"(?P<rest>[0-9a-fA-F]+) [ *]\S+")
_SCHEME = re.compile(r"(?:sha256=|v1,|v1=|0x)(?P<rest>\S+)", re.IGNORECASE)
_UTC_SPELLINGS = ("Z", "z", "+00:00", "-00:00", "+0000", " UTC", "")
_OFFSETS = (*(hours * 60 for hours in range(-12, 15) if hours), -210, 210, 270, 330, 345, 390, 570, 630)
"""In minutes: the whole hours, and the half and quarter ones where many people live."""
_LAST_YEAR = 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPACES = ((b"", b" "), (b"", b"\t"), (b"", b" \n"), (b"", b" \r\n"), (b" ", b""), (b" ", b" "))
_OTHER_HASHES = {16: "md5", 20: "sha1", 28: "sha224", 48: "sha384", 64: "sha512"}


@dataclass(frozen=True, slots=True)
class Key:
    """A tick secret and what it is to the job: None for its own, else the sentence that names whose it is."""

    secret: bytes
    whose: str | None = None
    reference: str = ""
    """How the configuration refers to it (`env:NAME`), to recognise a reference that was signed with as it stands."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether the signature is right, and otherwise what was done wrong, in sentences."""

    matches: bool
    mistakes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Guess:
    """One way to have done a step; `mistake` is None for the right way."""

    value: bytes
    mistake: str | None = None


def explain(
    supplied: str, job: str, run_id: str, cutoff: str, keys: Sequence[Key], *, as_written: str | None = None
) -> Finding:
    """Find the fewest mistakes that lead from the secrets and the tick to the supplied signature.

    `as_written` is the message with the escapes that it has in the JSON text, where somebody may have signed those.
    """
    digests = list(_digests(supplied))
    tries = product(digests, _messages(job, run_id, cutoff, as_written), _secrets(keys))
    found = sorted(
        (mistakes for digest, message, secret in tries if (mistakes := _mistakes(digest, message, secret)) is not None),
        key=len,
    )
    if found:
        return Finding(matches=not found[0], mistakes=found[0])
    return Finding(matches=False, mistakes=(_unexplained(supplied, run_id, cutoff, keys),))


def _mistakes(digest: _Guess, message: _Guess, secret: _Guess) -> tuple[str, ...] | None:
    """The mistakes of this combination if it yields the digest, else None."""
    how = _algorithm(digest.value, secret.value, message.value)
    if how is None:
        return None
    return tuple(step for step in (digest.mistake, how or None, message.mistake, secret.mistake) if step)


def _algorithm(digest: bytes, secret: bytes, message: bytes) -> str | None:
    """An empty string for HMAC-SHA256, the mistake for another algorithm, None where nothing fits."""
    name = _OTHER_HASHES.get(len(digest), "sha256")
    if _same(digest, hmac.digest(secret, message, name)):
        return "" if name == "sha256" else f"It is an HMAC with {name.upper()}; use SHA-256."
    if _same(digest, hmac.digest(message, secret, name)):
        return "Secret and message are swapped: the secret is the key, `runId.cutoffIso` is the message."
    if _same(digest, hashlib.new(name, message).digest()):
        return "It is a plain hash without a key; use an HMAC (openssl dgst -hmac)."
    if _same(digest, hashlib.new(name, secret + message).digest()):
        return "It is a plain hash of secret and message in a row; use an HMAC (openssl dgst -hmac)."
    return None


def _same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)


def _digests(supplied: str) -> Iterator[_Guess]:
    """The digests that the supplied text may stand for, the plain reading first."""
    bare = supplied.strip()
    surroundings = None if bare == supplied else "There is white space or a line end around the signature."
    if _BARE_HEX.fullmatch(bare):
        yield _Guess(bytes.fromhex(bare), surroundings)
    for pattern, mistake in (
        (_OPENSSL_PREFIX, "OpenSSL's prefix is still in front of the hex: add `-r | cut -d' ' -f1`."),
        (_OPENSSL_SUFFIX, "OpenSSL's file name still follows the hex: add `| cut -d' ' -f1`."),
        (_SCHEME, "There is a scheme in front of the signature; send the bare hex."),
        (re.compile(r"[\"'](?P<rest>.+)[\"']"), "There are quotes around the signature."),
    ):
        if wrapped := pattern.fullmatch(bare):
            yield from _encodings(wrapped["rest"], mistake)
    yield from _encodings(bare, surroundings)


def _encodings(text: str, mistake: str | None) -> Iterator[_Guess]:
    """The bytes behind the text as hex, hex with colons, base64 and base64 of hex."""
    before = f"{mistake} " if mistake else ""
    joined = text.replace(":", "")
    if raw := _from_hex(joined):
        colons = "There are colons between the bytes (openssl -c); send plain hex." if joined != text else ""
        yield _Guess(raw, (before + colons).strip() or None)
    if raw := _from_base64(text):
        yield _Guess(raw, f"{before}It is base64; send lower- or upper-case hex.")
        if inner := _from_hex(raw.decode("latin-1").strip()):
            yield _Guess(inner, f"{before}It is base64 of the hex; send the hex itself.")


def _messages(job: str, run_id: str, cutoff: str, as_written: str | None) -> Iterator[_Guess]:
    """What may have been signed, the right message first."""
    right = f"{run_id}.{cutoff}"
    yield _Guess(_bytes(right))
    newline = "The signed text ends in a line end: use printf '%s', not echo."
    yield from (_Guess(_bytes(right + end), newline) for end in ("\n", "\r\n", " "))
    unset = "was empty when it was signed: its variable is not set in the shell that signs."
    yield from (
        _Guess(_bytes(message), f"{what} {unset}")
        for what, message in (("The run id", f".{cutoff}"), ("The cutoff", f"{run_id}."), ("Everything", "."))
    )
    joined = "Run id and cutoff are joined with something other than one dot."
    yield from (_Guess(_bytes(f"{run_id}{mark}{cutoff}"), joined) for mark in ("", ":", "|", "\n", " ", ",", "/", "-"))
    yield _Guess(_bytes(f"{cutoff}.{run_id}"), "The cutoff is signed first; the order is runId, dot, cutoffIso.")
    yield from (_Guess(_bytes(part), "Only one of runId and cutoffIso is signed.") for part in (run_id, cutoff))
    yield _Guess(_bytes(f"{job}.{right}"), "The job's name is signed too; sign runId, dot, cutoffIso.")
    quoted = "The quotes are part of the signed text."
    yield from (_Guess(_bytes(mark + right + mark), quoted) for mark in ('"', "'"))
    spelled = "Another spelling of the cutoff is signed: sign and send the same characters."
    yield from (_Guess(_bytes(f"{run_id}.{other}"), spelled) for other in _spellings(cutoff))
    counted = "The cutoff is signed as a number since 1970: sign and send the same characters."
    yield from (_Guess(_bytes(f"{run_id}.{number}"), counted) for number in _numbers(cutoff))
    formed = "The run id is signed in another Unicode normal form: sign and send the same characters."
    yield from (_Guess(_bytes(f"{normalize(form, run_id)}.{cutoff}"), formed) for form in ("NFC", "NFD"))
    if as_written is not None:
        escaped = "The escapes of the JSON text are signed: sign the characters that they stand for."
        yield _Guess(_bytes(as_written), escaped)
    body = "The JSON body is signed; sign runId, dot, cutoffIso."
    yield from (_Guess(text, body) for text in _bodies(run_id, cutoff))


def _spellings(cutoff: str) -> Iterator[str]:
    """The same instant as other programs write it: in UTC, or with an offset that clocks on earth have."""
    try:
        instant = parse_rfc3339(cutoff)
    except ValueError:
        return
    whole, micro = f"{instant:%Y-%m-%dT%H:%M:%S}", f"{instant.microsecond:06}"
    stems = (whole, f"{whole}.{micro[:3]}", f"{whole}.{micro}", whole.removesuffix(":00"))
    utc = product((*stems, *(stem.replace("T", " ") for stem in stems)), _UTC_SPELLINGS)
    abroad = (other for minutes in _OFFSETS if 1 < instant.year < _LAST_YEAR for other in _local(instant, minutes))
    yield from (other for other in (*map("".join, utc), *abroad) if other != cutoff)


def _numbers(cutoff: str) -> Iterator[str]:
    """The same instant in seconds since 1970, whole or not, and in milliseconds."""
    try:
        instant = parse_rfc3339(cutoff)
    except ValueError:
        return
    micro = (instant - _EPOCH) // timedelta(microseconds=1)
    whole = micro // 1_000_000
    yield from (str(whole), f"{whole}.0", f"{micro / 1_000_000}", str(micro // 1000))


def _local(instant: datetime, minutes: int) -> Iterator[str]:
    local = instant.astimezone(timezone(timedelta(minutes=minutes)))
    yield from (local.isoformat(timespec=digits) for digits in ("seconds", "milliseconds"))


def _bodies(run_id: str, cutoff: str) -> Iterator[bytes]:
    fields = {"runId": run_id, "cutoffIso": cutoff}
    for order, separators in product((list(fields), list(reversed(fields))), ((",", ":"), (", ", ": "))):
        yield json.dumps({name: fields[name] for name in order}, separators=separators, ensure_ascii=False).encode()


def _secrets(keys: Sequence[Key]) -> Iterator[_Guess]:
    """The keys that may have been used, the job's own first."""
    for key in keys:
        yield _Guess(key.secret, key.whose)
    yield _Guess(b"", "The secret was empty: the variable is not set in the shell that signs.")
    for key in (key for key in keys if key.whose is None):
        ended = "The secret is used with a line end after it: trim it (printf '%s', or $(cat FILE) in a shell)."
        yield from (_Guess(key.secret + end, ended) for end in (b"\n", b"\r\n", b"\r"))
        spaced = "The secret is used with white space around it that is no part of it: trim it."
        yield from (_Guess(before + key.secret + after, spaced) for before, after in _SPACES)
        if (trimmed := key.secret.strip()) != key.secret:
            yield _Guess(trimmed, "The secret is used without the white space that is around it in Tocsin's own copy.")
        quoted = "The quotes around the secret are used as part of it."
        yield from (_Guess(mark + key.secret + mark, quoted) for mark in (b'"', b"'"))
        if key.reference:
            yield _Guess(_bytes(key.reference), "The reference to the secret is used as the secret; use what it names.")
        text = key.secret.decode("latin-1")
        if raw := _from_hex(text):
            yield _Guess(raw, "The secret is decoded from hex first; its characters are the key as they stand.")
        if raw := _from_base64(text.removeprefix("whsec_")):
            yield _Guess(raw, "The secret is decoded from base64 first; its characters are the key as they stand.")


def _unexplained(supplied: str, run_id: str, cutoff: str, keys: Sequence[Key]) -> str:
    """What can be said of a signature that no known mistake leads to."""
    bare = supplied.strip().lower()
    if not bare:
        return "The signature is empty: the command that makes it printed nothing."
    right = (hmac.new(key.secret, _bytes(f"{run_id}.{cutoff}"), "sha256").hexdigest() for key in keys)
    if len(bare) != _HEX_LENGTH and any(one.startswith(bare) or bare.startswith(one) for one in right):
        return f"It is cut short or has something after it: {len(bare)} characters in place of {_HEX_LENGTH}."
    if not _BARE_HEX.fullmatch(bare):
        return f"It is no hex of {_HEX_LENGTH} characters, and no known mistake leads to it."
    return (
        "No known mistake leads to it: compare the secret, the run id and the cutoff with what the scheduler uses, "
        "character by character."
    )


def _from_hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text) if text and " " not in text else None
    except ValueError:
        return None


def _from_base64(text: str) -> bytes | None:
    padded = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _bytes(text: str) -> bytes:
    """UTF-8, with whatever a terminal passed on unchanged."""
    return text.encode("utf-8", "surrogateescape")
