"""Secrets at rest: sealed with the first key of TOCSIN_ENCRYPTION_KEYS, opened with any of them."""

import hmac
from collections.abc import Mapping, Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from service.domain.errors import ConfigurationError


class Unreadable(Exception):
    """What is stored was sealed with a key that is not among TOCSIN_ENCRYPTION_KEYS."""


def new_key() -> str:
    """A fresh encryption key in the form that TOCSIN_ENCRYPTION_KEYS takes."""
    return Fernet.generate_key().decode("ascii")


class Vault:
    """Seals and opens secrets; neither its representation nor its errors show a key or a secret."""

    __slots__ = ("_fernet", "_first", "_tagging")

    def __init__(self, keys: Sequence[str]) -> None:
        """Take the keys, the one that seals first.

        Raises:
            ConfigurationError: there is no key, or one of them is not a Fernet key.

        """
        if not keys:
            raise ConfigurationError("TOCSIN_ENCRYPTION_KEYS is empty; give at least one Fernet key.")
        ciphers = [_fernet(key, position) for position, key in enumerate(keys, start=1)]
        self._fernet = MultiFernet(ciphers)
        self._first = ciphers[0]
        self._tagging = hmac.digest(keys[0].encode(), b"tocsin tags", "sha256")

    def seal(self, secret: bytes) -> bytes:
        """Encrypt and authenticate; two seals of one secret differ."""
        return self._fernet.encrypt(secret)

    def open(self, sealed: bytes) -> bytes:
        """Give back what was sealed.

        Raises:
            Unreadable: no key opens it, or the stored bytes were changed.

        """
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken:
            raise Unreadable from None

    def tag(self, purpose: str, message: bytes) -> str:
        """Hex that only a holder of the first key can make of this message; another purpose gets another tag."""
        return hmac.digest(self._tagging, purpose.encode() + b"\0" + message, "sha256").hex()

    def is_current(self, sealed: bytes) -> bool:
        """Whether the first key sealed it, so that the others are not needed for it any more."""
        try:
            self._first.decrypt(sealed)
        except InvalidToken:
            return False
        return True

    def seal_texts(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Seal each value by itself, as text that fits into JSON; the names stay readable."""
        return {name: self.seal(text.encode()).decode("ascii") for name, text in texts.items()}

    def open_texts(self, sealed: Mapping[str, str]) -> dict[str, str]:
        """Give back what `seal_texts` sealed.

        Raises:
            Unreadable: one of them cannot be opened.

        """
        return {name: self.open(text.encode()).decode() for name, text in sealed.items()}


def _fernet(key: str, position: int) -> Fernet:
    """One key as a cipher; the error names the key's place in the list, never the key."""
    try:
        return Fernet(key)
    except ValueError:
        detail = (
            f"TOCSIN_ENCRYPTION_KEYS: key {position} of the list is not 32 bytes in URL-safe base64; make a new one."
        )
        raise ConfigurationError(detail) from None
