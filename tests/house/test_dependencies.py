"""What is imported is declared, what is declared has a reason, what is installed is pinned by its hash."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def names(requirements: list[object]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9-]", it, maxsplit=1)[0] for it in requirements if isinstance(it, str)}


RUNTIME = names(PROJECT["project"]["dependencies"])
DEVELOPMENT = names(PROJECT["dependency-groups"]["dev"] + PROJECT["dependency-groups"]["build"])
PEERS = names(PROJECT["dependency-groups"]["peers"])
"""Installed apart, for `make bench-peers` alone."""
BROWSER = names(PROJECT["dependency-groups"]["browser"])
"""Likewise, for `make console-proof`."""
APART = (ROOT / "bench" / "peers" / "pgqueuer_worker.py", ROOT / "bench" / "console" / "browser")
INSTALLED_APART = {".peers", ".browser"}


def imported(*folders: str) -> set[str]:
    """The distributions whose modules are imported anywhere in these folders."""
    providers = packages_distributions()
    found: set[str] = set()
    for path in (it for folder in folders for it in (ROOT / folder).rglob("*.py")):
        if any(path.is_relative_to(it) for it in APART) or INSTALLED_APART & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import():
                    found.update(name.name for name in node.names)
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module)
    ours = {"bench", "examples", "service", "tests"}
    modules = {name.split(".")[0] for name in found} - set(sys.stdlib_module_names) - ours
    return {_provider(providers[module]) for module in modules}


def _provider(distributions: list[str]) -> str:
    """The distribution behind a module; of those in one namespace, such as opentelemetry, one that is declared."""
    known = [name.lower().replace("_", "-") for name in distributions]
    return next((name for name in known if name in RUNTIME | DEVELOPMENT), known[0])


def test_all_that_the_service_imports_is_declared() -> None:
    assert imported("service", "alembic") - RUNTIME == set()


def test_all_that_tests_and_benchmarks_import_is_declared() -> None:
    assert imported("tests", "bench") - RUNTIME - DEVELOPMENT == set()


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text()
    explained = set(re.findall(r"^\| ([a-z0-9-]+) \| .+ \|$", page, re.MULTILINE)) - {"package", "---"}
    assert explained == RUNTIME | DEVELOPMENT | PEERS | BROWSER


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_pins_every_package_by_hash_and_names_no_index(lock: Path) -> None:
    text = lock.read_text()
    packages = re.split(r"\n(?=\S)", text.strip())
    assert all("==" in package and "--hash=sha256:" in package for package in packages)
    assert "://" not in text
    assert "--index" not in text


def test_the_locks_hold_what_is_declared() -> None:
    runtime, dev = ((ROOT / "requirements" / name).read_text() for name in ("runtime.txt", "dev.txt"))
    peers, browser = ((ROOT / "requirements" / name).read_text() for name in ("peers.txt", "browser.txt"))
    for lock, declared in ((runtime, RUNTIME), (dev, RUNTIME | DEVELOPMENT), (peers, PEERS), (browser, BROWSER)):
        pinned = set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
        assert declared - pinned == set()
    assert set(re.findall(r"^\S+==\S+", runtime, re.MULTILINE)) <= set(re.findall(r"^\S+==\S+", dev, re.MULTILINE))
