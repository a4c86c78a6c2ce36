"""The console's style sheet, script and icon, read once; their addresses change with their content."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is served."""

    content: bytes
    media_type: str
    url: str


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    version = hashlib.sha256(content).hexdigest()[:12]
    return Asset(content, _TYPES[path.suffix], f"/console/static/{path.name}?v={version}")


ASSETS = {path.name: _asset(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}


def url(name: str) -> str:
    """The address of this file; the browser may keep what is there."""
    return ASSETS[name].url
