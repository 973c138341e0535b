"""Virtual environments of the peers: made once in a cache folder, with every package pinned."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.fanout.errors import BenchError

_REQUIREMENTS = Path(__file__).with_name("requirements")
_PIP_SECONDS = 900


def default_cache() -> Path:
    """Where environments are kept unless the caller says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bringup-bench"


def pinned_version(name: str, package: str) -> str:
    """The version of a package that the requirements of an environment name."""
    for line in (_REQUIREMENTS / f"{name}.txt").read_text().splitlines():
        found, _, version = line.partition("==")
        if found == package:
            return version
    raise BenchError(f"requirements/{name}.txt does not pin {package}")


def environment(cache: Path, name: str) -> Path:
    """The folder of a ready environment; it is named after its Python and its pins, and made when missing.

    Raises BenchError with pip's last words when that fails.
    """
    pins = _REQUIREMENTS / f"{name}.txt"
    digest = hashlib.sha256(f"{sys.version}\n{sys.executable}\n{pins.read_text()}".encode()).hexdigest()[:10]
    folder = cache / f"{name}-{digest}"
    complete = folder / "complete"
    if complete.exists():
        return folder
    print(f"making the environment of {name} in {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _call([sys.executable, "-m", "venv", str(folder)])
    _call([str(folder / "bin" / "pip"), "install", "--quiet", "--requirement", str(pins)])
    complete.touch()
    return folder


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}:\n{last}")
