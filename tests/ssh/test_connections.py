"""Opening a connection, and commands over it: every failure has its class."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from activities.ssh.connection import Connection
from activities.ssh.errors import AuthError, ChannelError, ConnectError, HostKeyError, SshError
from activities.ssh.target import SshTarget
from tests.ssh.conftest import Sshd, free_port, make_key


def failure(target: SshTarget, deadline_s: float = 5) -> SshError:
    with pytest.raises(SshError) as caught:
        Connection.open(target, deadline_s).close()
    return caught.value


def test_a_command_returns_status_and_both_streams(connection: Connection) -> None:
    result = connection.exec("cat; echo err >&2; exit 7", b"in")
    assert (result.exit_status, result.stdout, result.stderr) == (7, b"in", b"err\n")


def test_full_windows_on_both_streams_do_not_block(connection: Connection) -> None:
    size = 4 << 20
    result = connection.exec(
        f"head -c {size} /dev/zero >&2; head -c {size} /dev/zero; cat | wc -c", b"x" * size
    )
    assert len(result.stderr) == size
    assert result.stdout == b"\0" * size + f"{size}\n".encode()


def test_a_command_that_reads_no_input_still_gives_its_result(connection: Connection) -> None:
    assert connection.exec("echo done", b"x" * (5 << 20)).stdout == b"done\n"


def test_a_command_beyond_its_deadline_is_a_lost_machine(connection: Connection) -> None:
    with pytest.raises(ChannelError, match=r"127\.0\.0\.1:\d+: not finished after 0\.3 s") as caught:
        connection.exec("sleep 30", timeout_s=0.3)
    assert caught.value.failure_class == "lost-machine"
    assert connection.exec("echo still usable").exit_status == 0


def test_silence_beyond_its_limit_is_a_lost_machine(connection: Connection) -> None:
    with pytest.raises(ChannelError, match="no output for"):
        connection.stream("echo; sleep 30", b"", lambda _: None, lambda _: None, idle_s=0.3)


def test_asked_to_stop_a_stream_returns_within_a_second(connection: Connection) -> None:
    begun = time.monotonic()
    assert connection.stream("sleep 30", b"", lambda _: None, lambda _: None, lambda: True) is None
    assert time.monotonic() - begun < 1


def test_a_pinned_host_key_is_accepted_and_reported(sshd: Sshd, connection: Connection) -> None:
    assert connection.host_key == sshd.host_key


def test_without_a_pinned_host_key_the_one_seen_is_reported(sshd: Sshd) -> None:
    connection = Connection.open(sshd.target(host_key=None))
    assert connection.host_key == sshd.host_key
    connection.close()


def test_another_host_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    error = failure(sshd.target(host_key=(tmp_path / "other.pub").read_text()))
    assert isinstance(error, HostKeyError)
    assert error.failure_class == "host-key"
    assert sshd.host_key in str(error)


def test_a_machine_without_the_pinned_type_of_host_key_is_refused(sshd: Sshd) -> None:
    ecdsa = " ".join((sshd.folder / "ecdsa.pub").read_text().split()[:2])
    assert isinstance(failure(sshd.target(host_key=ecdsa)), HostKeyError)


def test_a_key_the_machine_does_not_know_is_an_auth_failure(sshd: Sshd, tmp_path: Path) -> None:
    error = failure(sshd.target(private_key=make_key(tmp_path / "stranger")))
    assert isinstance(error, AuthError)
    assert f"127.0.0.1:{sshd.port}: login as root" in str(error)


def test_an_unreadable_key_is_an_auth_failure_that_does_not_show_it(sshd: Sshd) -> None:
    error = failure(sshd.target(private_key="-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n"))
    assert isinstance(error, AuthError)
    assert "c2VjcmV0" not in str(error)


def test_a_target_does_not_show_its_key(target: SshTarget) -> None:
    assert "PRIVATE KEY" not in repr(target)


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_ecdsa_and_rsa_keys_log_in(sshd: Sshd, kind: str) -> None:
    connection = Connection.open(sshd.target(private_key=(sshd.folder / kind).read_text()))
    assert connection.exec("true").exit_status == 0
    connection.close()


def test_an_ed25519_key_in_pkcs8_logs_in(sshd: Sshd) -> None:
    key = serialization.load_ssh_private_key((sshd.folder / "user").read_bytes(), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    connection = Connection.open(sshd.target(private_key=pem.decode()))
    assert connection.exec("true").exit_status == 0
    connection.close()


def test_a_closed_port_is_a_connect_failure_that_names_it(sshd: Sshd) -> None:
    port = free_port()
    error = failure(sshd.target(port=port))
    assert isinstance(error, ConnectError)
    assert error.failure_class == "connect"
    assert f"127.0.0.1:{port}: TCP connect failed after" in str(error)


def test_a_port_that_says_nothing_is_a_connect_failure_within_the_deadline(sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        error = failure(sshd.target(port=silent.getsockname()[1]), deadline_s=0.5)
    assert isinstance(error, ConnectError)
    assert time.monotonic() - begun < 2
