"""Signatures: those of ticks that come in, and those of webhooks that go out (Standard Webhooks)."""

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Final

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 -- the public prefix of a secret, not one
MIN_KEY_BYTES: Final = 24
MAX_KEY_BYTES: Final = 64

_HEX_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_NOBODYS_SECRET: Final = (bytes(32),)
"""Stands in where there are no secrets, so that an unknown job takes as long to refuse as a known one."""


def tick_signature(secret: bytes, run_id: str, cutoff: str) -> str:
    """The lower-case hex HMAC-SHA256 of `runId.cutoffIso`, both exactly as they stand in the tick.

    Raises:
        UnicodeEncodeError: one of them holds a lone surrogate.

    """
    return hmac.digest(secret, f"{run_id}.{cutoff}".encode(), "sha256").hex()


def verify_tick(secrets: Sequence[bytes], run_id: object, cutoff: object, signature: object) -> bool:
    """Whether one of the secrets made the signature; anything that is no signature, or is no text, is False.

    Every secret is tried whichever matches, each compared in constant time. Without secrets the answer is False
    after the same work.
    """
    if not (isinstance(run_id, str) and isinstance(cutoff, str) and isinstance(signature, str)):
        return False
    if not _HEX_SHA256.fullmatch(signature):
        return False
    try:
        message = f"{run_id}.{cutoff}".encode()
    except UnicodeEncodeError:
        return False
    given = bytes.fromhex(signature)
    matches = [hmac.compare_digest(hmac.digest(one, message, "sha256"), given) for one in secrets or _NOBODYS_SECRET]
    return bool(secrets) and any(matches)


def verify_token(tokens: Sequence[bytes], given: bytes) -> bool:
    """Whether `given` is one of the static tokens; each is compared in constant time, whichever matches."""
    matches = [hmac.compare_digest(one, given) for one in tokens]
    return any(matches)


def new_secret(random_bytes: bytes) -> str:
    """The text of a webhook secret around the given random bytes.

    Raises:
        ValueError: not 24 to 64 bytes.

    """
    _check_length(random_bytes)
    return SECRET_PREFIX + b64encode(random_bytes).decode()


def decode_secret(text: str) -> bytes:
    """The signing key in a `whsec_…` text. There is no other form: a text without the prefix is refused, not guessed.

    Source: Standard Webhooks, "Signature scheme" (symmetric): `whsec_` and the base64 of 24 to 64 bytes.

    Raises:
        ValueError: names the mistake without repeating the text.

    """
    if fault := _secret_fault(text):
        raise ValueError(fault)
    encoded = text.removeprefix(SECRET_PREFIX)
    try:
        key = b64decode(encoded, validate=True)
    except Base64Error:
        padding = "the secret's base64 is cut short: its length must be a multiple of 4, with = at its end if needed"
        raise ValueError(padding) from None
    _check_length(key)
    if b64encode(key).decode() != encoded:  # stray bits or padding: two texts would stand for one key
        message = "the secret's base64 is not in its canonical form; copy it again from where it was made"
        raise ValueError(message)
    return key


def sign(secrets: Sequence[bytes], webhook_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` of these exact bytes: one `v1,<base64>` for each secret, in their order.

    `timestamp` is in whole seconds since 1970. Source: Standard Webhooks, "Signature scheme".

    Raises:
        ValueError: there is no secret; nothing is ever sent unsigned.

    """
    if not secrets:
        message = "a webhook cannot be signed without a secret"
        raise ValueError(message)
    message_bytes = f"{webhook_id}.{timestamp}.".encode() + body
    return " ".join([_v1(secret, message_bytes) for secret in secrets])


def _v1(secret: bytes, message: bytes) -> str:
    return "v1," + b2a_base64(hmac.digest(secret, message, "sha256"), newline=False).decode()


def _check_length(key: bytes) -> None:
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        message = f"the secret's key has {len(key)} bytes; it must have {MIN_KEY_BYTES} to {MAX_KEY_BYTES}"
        raise ValueError(message)


def _secret_fault(text: str) -> str | None:
    """What is wrong with the text around the base64, in the words of who typed it."""
    encoded = text.removeprefix(SECRET_PREFIX)
    checks = (
        (text != text.strip(), "the secret has spaces or a line break around it"),
        (text[:1] in ("'", '"', "`"), "the secret stands in quotes; leave them out"),
        (text.startswith("v1,"), "the secret begins with v1, which belongs to signatures; it begins with whsec_"),
        (encoded == text, "the secret must begin with whsec_ and go on with the base64 of 24 to 64 random bytes"),
        ("-" in encoded or "_" in encoded, "the secret is in URL-safe base64 (- and _); use standard base64"),
        (not _BASE64.fullmatch(encoded), "the secret has characters that are not base64 after whsec_"),
    )
    return next((fault for wrong, fault in checks if wrong), None)
