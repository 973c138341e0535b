"""nvidia-ml-py on machines: its one file, put there once for each version."""

from __future__ import annotations

import hashlib
import shlex
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from activities.ssh.connection import Connection
from activities.supervisor.errors import SupervisorError, classify
from activities.supervisor.script import DEFAULT_BASE

_FILE = "pynvml.py"
_SHELL = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "/bin/sh", "-c")
_UPLOAD_S = 60


@cache
def source() -> bytes:
    """The module as nvidia-ml-py ships it. Read, never imported: there may be no driver here."""
    return Path(str(distribution("nvidia-ml-py").locate_file(_FILE))).read_bytes()


@cache
def digest() -> str:
    """Its SHA-256: another version is another folder, and never changes under a step that runs."""
    return hashlib.sha256(source()).hexdigest()


def module_folder(base: str = DEFAULT_BASE) -> str:
    """The folder on machines from which the probe imports it."""
    return f"{base}/lib/{digest()}"


def nvml_environment(base: str = DEFAULT_BASE) -> dict[str, str]:
    """The variables by which the probe finds the module."""
    return {"BRINGUP_NVML_MODULE": module_folder(base)}


def prepare_nvml(connection: Connection, base: str = DEFAULT_BASE) -> str:
    """Puts the module on the machine unless it is there whole; returns the file's path there.

    Raises SshError for the connection, SupervisorError (no-space, privilege, internal) for the machine. Safe
    to repeat, and from several connections at once. One short command when there is nothing to do.
    """
    folder = module_folder(base)
    path = f"{folder}/{_FILE}"
    whole = f'[ "$(wc -c < {shlex.quote(path)})" -eq {len(source())} ]'
    if connection.exec(_command(connection, f"{whole} 2>/dev/null")).exit_status == 0:
        return path
    place, final = shlex.quote(folder), shlex.quote(path)
    store = (
        f"umask 077; new={final}.$$; mkdir -p {place} && chmod 700 {shlex.quote(base)} && "
        f'cat > "$new" && [ "$(wc -c < "$new")" -eq {len(source())} ] && mv "$new" {final} && exit 0; '
        'rm -f "$new"; exit 1'
    )
    result = connection.exec(_command(connection, store), source(), timeout_s=_UPLOAD_S)
    if result.exit_status != 0:
        said = result.stderr.decode("utf-8", "replace").strip()
        endpoint = connection.target.endpoint
        raise SupervisorError(
            f"{endpoint}: putting nvidia-ml-py into {folder} failed: {said or 'it came short'}",
            classify(said),
        )
    return path


def _command(connection: Connection, script: str) -> str:
    words = [*_SHELL, script]
    return "exec " + shlex.join(words if connection.target.user == "root" else ["sudo", "-n", *words])
