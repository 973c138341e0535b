"""A real sshd on loopback, with its own keys and an own folder for the supervisor's state."""

from __future__ import annotations

import getpass
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from activities.ssh.connection import Connection
from activities.ssh.target import SshTarget
from activities.supervisor.client import Supervisor
from activities.supervisor.script import Layout
from tests.ssh.relay import Relay


@dataclass(frozen=True)
class Sshd:
    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    def target(self, **changes: object) -> SshTarget:
        values: dict[str, object] = {
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "private_key": (self.folder / "user").read_text(),
            "host_key": self.host_key,
        }
        return SshTarget(**{**values, **changes})  # type: ignore[arg-type]

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host.pub").read_text().split()[:2])


def make_key(path: Path, kind: str = "ed25519", *options: str) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path), *options], check=True)
    return path.read_text()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
            return sock.recv(4) == b"SSH-"
    except OSError:
        return False


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if os.geteuid() != 0 or shutil.which("sshd", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("needs root and sshd")
    folder = tmp_path_factory.mktemp("sshd")
    make_key(folder / "host")
    make_key(folder / "user")
    keys = folder / "authorized_keys"
    keys.write_text((folder / "user.pub").read_text())
    for kind in ("ecdsa", "rsa"):
        make_key(folder / kind, kind, "-m", "PEM")
        keys.write_text(keys.read_text() + (folder / f"{kind}.pub").read_text())
    Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    options = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "PidFile": "none",
        "UsePAM": "no", "UseDNS": "no", "StrictModes": "no", "PermitRootLogin": "prohibit-password",
        "AuthorizedKeysFile": keys,
        # Keeps bash from reading the .bashrc of whoever runs the tests, which may take long.
        "SetEnv": "SHLVL=2",
        "PasswordAuthentication": "no", "KbdInteractiveAuthentication": "no", "MaxStartups": "100",
    }  # fmt: skip
    config = folder / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stderr=log)
    try:
        deadline = time.monotonic() + 10
        while not _answers(port):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "sshd did not answer within 10 s"
        yield Sshd(port, folder, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


@pytest.fixture
def target(sshd: Sshd) -> SshTarget:
    return sshd.target()


@pytest.fixture
def connection(target: SshTarget) -> Iterator[Connection]:
    opened = Connection.open(target)
    yield opened
    opened.close()


@pytest.fixture
def relay(sshd: Sshd) -> Iterator[Relay]:
    with Relay(sshd.port) as opened:
        yield opened


@pytest.fixture
def base(tmp_path: Path) -> Iterator[str]:
    """A supervisor folder of the test's own; whatever its steps left running is ended afterwards."""
    path = f"/var/tmp/bringup-test-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}-{os.getpid()}"
    yield path
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        folder = Path(root, Layout(path, sudo=False).cgroup)
        if folder.exists():
            (folder / "cgroup.kill").write_text("1")
            deadline = time.monotonic() + 5
            while "populated 1" in (folder / "cgroup.events").read_text() and time.monotonic() < deadline:
                time.sleep(0.01)
            for group in [*folder.glob("*/"), folder]:
                group.rmdir()
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def supervisor(connection: Connection, base: str) -> Supervisor:
    return Supervisor(connection, base)
