"""Writes docs/settings.md from `Settings`, so that no setting is undocumented: `python -m service.settings_page`.

With `--check` it changes nothing and exits with 1 when the page is not what it would write.
"""

import sys
from pathlib import Path

from pydantic.fields import FieldInfo

from service.settings import PREFIX, Settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

_HEAD = f"""# Settings

Generated from `service/settings.py` with `python -m service.settings_page`; do not edit it here.

All settings are environment variables. An empty one counts as not set. They are checked as a whole at start-up, which
refuses with one line that names the setting and the mend. `{PREFIX}DATABASE_URL`, `{PREFIX}BOOTSTRAP_KEY` and each of
`{PREFIX}ENCRYPTION_KEYS` may also be given as `file:PATH` or `env:NAME`; line ends behind the secret are trimmed.
A variable that begins with `{PREFIX}` and is no setting has no effect; start-up and `tocsin doctor` warn of it.

| setting | default | meaning |
| --- | --- | --- |
"""

_TAIL = f"""
Every command that calls the API also takes `{PREFIX}URL` (where that is; `--url` wins) and `{PREFIX}API_KEY` (an API
key, or where it is: `file:PATH`, `env:NAME`). Without `{PREFIX}API_KEY` it sends `{PREFIX}BOOTSTRAP_KEY`, and without
that the key that `tocsin up` has generated here, `.tocsin/bootstrap.key`: then the audit trail has `bootstrap` as the
actor, whoever it was. Give each person a key of their own.
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(_row(name, field) for name, field in Settings.model_fields.items()) + _TAIL


def _row(name: str, field: FieldInfo) -> str:
    default = "" if field.default in {None, ()} else f"`{field.default}`"
    return f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |\n"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; the exit code."""
    if "--check" not in arguments:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    sys.stderr.write("docs/settings.md is out of date: run `python -m service.settings_page`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
