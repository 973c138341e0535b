"""The supervisor script and the commands that install and call it."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from functools import cache
from importlib import resources

DEFAULT_BASE = "/var/lib/bringup"
# In the order in which they make one file; functions first, then the call of one.
_PARTS = ("supervisor", "machine", "runner", "start", "ending", "verbs")
_ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
    "LC_ALL=C.UTF-8",
)


@cache
def script() -> bytes:
    """The script's text, put together from its parts."""
    folder = resources.files("activities.supervisor")
    return b"".join(folder.joinpath(f"{part}.sh").read_bytes() for part in _PARTS)


@cache
def digest() -> str:
    """Twelve hex digits of its SHA-256: another version is another file, and never changes under a step."""
    return hashlib.sha256(script()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the supervisor lives on one machine, and whether it must be reached through sudo."""

    base: str
    sudo: bool

    @property
    def path(self) -> str:
        """The installed script."""
        return f"{self.base}/lib/supervisor-{digest()}.sh"

    @property
    def cgroup(self) -> str:
        """Name of the folder for step groups; one per base, so that two on one machine do not meet."""
        if self.base == DEFAULT_BASE:
            return "bringup"
        return "bringup-" + hashlib.sha256(self.base.encode()).hexdigest()[:12]

    def call(self, nonce: str, *arguments: str) -> str:
        """The command for one verb. The environment is emptied, whatever login shell and sudo have set."""
        words = ["env", "-i", *_ENVIRONMENT, "/bin/sh", self.path, self.cgroup, nonce, *arguments]
        return "exec " + shlex.join(["sudo", "-n", *words] if self.sudo else words)

    def install(self) -> str:
        """The command that stores the script from standard input: whole or not at all, for root only."""
        base, path = shlex.quote(self.base), shlex.quote(self.path)
        steps = (
            f"umask 077; mkdir -p {base}/lib {base}/runs && chmod 700 {base} && "
            f'new={path}.$$ && cat > "$new" && [ "$(wc -c < "$new")" -eq {len(script())} ] && '
            f'mv "$new" {path}'
        )
        words = ["env", "-i", *_ENVIRONMENT, "/bin/sh", "-c", steps]
        return "exec " + shlex.join(["sudo", "-n", *words] if self.sudo else words)
