"""Files around a subscriber: the JSON that it is put from, and where a secret goes that is shown once."""

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer

from service.cli.options import secret_from
from service.domain import jsontext
from service.domain.errors import ConfigurationError, NotJson, TocsinError

FOR_READING_ONLY = frozenset({"state", "stateReason", "headOfLineAt", "createdAt", "updatedAt"})
"""Fields that reads have and a PUT does not take."""

_MAX_BYTES = 65_536

SecretTo = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write a secret that was made into this file, for this user alone (0600), and do not show it.",
    ),
]


def read_body(file: Path, secret: str | None) -> dict[str, Any]:
    """The subscriber that a file or stdin (`-`) holds, with the secret behind a reference.

    Raises:
        ConfigurationError: it cannot be read, is no JSON object, is too large, or has a secret as well.

    """
    try:
        raw = sys.stdin.buffer.read(_MAX_BYTES + 1) if str(file) == "-" else _beginning(file)
        value = jsontext.parse(raw) if len(raw) <= _MAX_BYTES else None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
    except NotJson:
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{file} must hold one JSON object of at most {_MAX_BYTES} bytes.")
    if secret is None:
        return value
    if "secret" in value:
        raise ConfigurationError(f"{file} has a secret already: leave it out, or --secret.")
    return {**value, "secret": secret_from(secret).decode("ascii", "replace")}


def _beginning(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_MAX_BYTES + 1)


class Kept:
    """Where a new secret goes: a file that is known to be writable before any secret is made, or the screen."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._draft: Path | None = None

    def __enter__(self) -> Self:
        """Begin a draft beside the file, which only this user may read.

        Raises:
            ConfigurationError: there is no writing there.

        """
        if self._path is not None:
            try:
                descriptor, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
            except OSError as error:
                raise ConfigurationError(f"{self._path} cannot be written: {error.strerror}") from None
            os.close(descriptor)
            self._draft = Path(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave no draft behind."""
        if self._draft is not None:
            with suppress(FileNotFoundError):
                self._draft.unlink()

    def take(self, answer: dict[str, Any], *, given: bool = False) -> None:
        """Move the answer's secret into the file; one that was `given` is neither kept nor shown.

        Raises:
            TocsinError: the secret could not be written after all.

        """
        secret = answer.pop("secret", None)
        if given:
            return
        if self._path is None or self._draft is None:
            if secret is not None:
                answer["secret"] = secret
                sys.stderr.write("The secret is shown this once: keep it now.\n")
        elif secret is None:
            sys.stderr.write(f"It existed before and keeps its secret: {self._path} is left as it is.\n")
        else:
            self._write(self._draft, self._path, str(secret))
            sys.stderr.write(f"The new secret is in {self._path}, for this user alone to read.\n")

    def _write(self, draft: Path, path: Path, secret: str) -> None:
        try:
            draft.write_text(f"{secret}\n", encoding="ascii")
            draft.replace(path)
        except OSError as failure:
            raise TocsinError(
                f"there is a new secret, but {path} could not be written ({failure.strerror}): make another one with "
                "`tocsin subscribers rotate-secret ID --grace-seconds 0`"
            ) from None
