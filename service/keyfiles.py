"""Keys that are generated once into the data folder, so that the first minute needs no set-up.

Only with the embedded PostgreSQL: there the keys live and die with the data that they protect.
"""

import os
from pathlib import Path
from secrets import token_urlsafe

from pydantic import SecretStr

from service.settings import Settings
from service.store.vault import new_key

BOOTSTRAP_KEY_FILE = "bootstrap.key"
ENCRYPTION_KEY_FILE = "encryption.key"


def complete(settings: Settings) -> Settings:
    """The settings with a bootstrap key and an encryption key, read from the data folder or generated into it."""
    if settings.database_url is not None:
        return settings
    update: dict[str, object] = {}
    if settings.bootstrap_key is None:
        key = _kept(settings.data_dir / BOOTSTRAP_KEY_FILE, "tsk_" + token_urlsafe(32))
        update["bootstrap_key"] = SecretStr(key)
    if not settings.encryption_keys:
        update["encryption_keys"] = (SecretStr(_kept(settings.data_dir / ENCRYPTION_KEY_FILE, new_key())),)
    return settings.model_copy(update=update)


def _kept(path: Path, fresh: str) -> str:
    """What the file holds; `fresh`, once written, where there was none. Two processes that race agree on one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(fresh + "\n")
    return fresh
