"""The machines of a benchmark, reached over SSH without bringup."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import paramiko

from bench.stack import BenchStack
from providers.sandbox.site import SandboxSite

# A hundred connections that begin at once share two cores.
_CONNECT_SECONDS = 60.0


@dataclass(frozen=True)
class Host:
    """A machine that is on; `host_key` is type and key, as known_hosts files have them."""

    name: str
    address: str
    host_key: str
    key_file: Path


def hosts_of(stack: BenchStack, count: int) -> list[Host]:
    """The site's first machines, with the host keys that they have now (a cleaned machine has a new one)."""
    machines = SandboxSite(stack.data_dir / "sandbox").machines()[:count]
    return [Host(one.name, one.address, one.host_key, one.key_file) for one in machines]


def write_known_hosts(path: Path, hosts: Sequence[Host]) -> Path:
    """Writes a known_hosts file with these machines only; returns its path."""
    path.write_text("".join(f"{host.address} {host.host_key}\n" for host in hosts))
    return path


@contextmanager
def connected(host: Host) -> Iterator[paramiko.SSHClient]:
    """One connection as root with TCP_NODELAY, which paramiko itself never sets; the host key is checked."""
    kind, encoded = host.host_key.split()
    expected = paramiko.hostkeys.HostKeyEntry.from_line(f"{host.address} {kind} {encoded}")
    assert expected is not None
    assert expected.key is not None
    with (
        socket.create_connection((host.address, 22), timeout=_CONNECT_SECONDS) as stream,
        paramiko.SSHClient() as client,
    ):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.get_host_keys().add(host.address, kind, expected.key)
        client.connect(
            host.address,
            username="root",
            pkey=paramiko.Ed25519Key.from_private_key_file(str(host.key_file)),
            sock=stream,
            allow_agent=False,
            look_for_keys=False,
            banner_timeout=_CONNECT_SECONDS,
            auth_timeout=_CONNECT_SECONDS,
        )
        yield client


def run(client: paramiko.SSHClient, command: str) -> tuple[int, str]:
    """Runs a command whose output is short; its exit status, and standard output and error in one."""
    transport = client.get_transport()
    assert transport is not None
    with transport.open_session() as channel:
        channel.set_combine_stderr(True)
        channel.exec_command(command)
        said = channel.makefile("rb").read().decode(errors="replace")
        return channel.recv_exit_status(), said


def on_each(hosts: Sequence[Host], work: Callable[[Host], None]) -> dict[str, str]:
    """One thread a machine, all at once; returns what went wrong, by machine."""
    failures: dict[str, str] = {}

    def guarded(host: Host) -> None:
        try:
            work(host)
        except Exception as error:  # whatever it was, it is that machine's failure and makes the run fail
            failures[host.name] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=guarded, args=(host,), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures
