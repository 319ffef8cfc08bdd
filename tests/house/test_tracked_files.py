"""The repository speaks of the project only: no paths of one machine, no addresses of one network's registries."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT, files, shown

# Put together here, so that this file does not find itself.
_MACHINE_PATHS = re.compile("(?:^|[^A-Za-z0-9_.])/(?:" + "|".join(["work", "farm", "root"]) + ")/")
_DOWNLOADS = re.compile('"resolved": *"https?' + ":|(?:--index-url|--extra-index-url|find-links) *=? *https?" + ":")
_BINARY = frozenset({".png", ".jpg", ".ico", ".woff2"})


def test_no_paths_of_a_machine() -> None:
    assert not _lines_with(_MACHINE_PATHS)


def test_no_download_addresses() -> None:
    assert not _lines_with(_DOWNLOADS)
    assert not [shown(path) for path in files() if path.name == "uv.lock"], "uv.lock has registry hosts; pin by requirements/"


def test_no_registry_of_this_machine() -> None:
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True).stdout
    hosts = {host for host in re.findall(r"//(?:[^/@'\s]*@)?([^/:'\s]+)", listed) if not host.startswith(("127.", "localhost"))}
    for host in hosts:
        assert not _lines_with(re.compile(re.escape(host)))


def test_requirements_are_pinned_with_hashes() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        pins = re.findall(r"^[A-Za-z0-9].*?(?=^[A-Za-z0-9]|\Z)", path.read_text(), re.MULTILINE | re.DOTALL)
        assert pins
        unsafe = [pin.splitlines()[0] for pin in pins if "==" not in pin or "--hash=sha256:" not in pin]
        assert not unsafe


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{shown(path)}:{number}: {line.strip()[:100]}"
        for path in files()
        if path.suffix not in _BINARY
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
