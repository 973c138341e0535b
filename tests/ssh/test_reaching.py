"""Machines that are away take no thread, and one that answers is asked over the connection it answered on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from temporalio.testing import ActivityEnvironment

from activities.access import Access
from activities.ssh.errors import AuthError, ConnectError
from activities.ssh.pool import ConnectionPool
from activities.ssh.reaching import reached
from activities.ssh.target import SshTarget
from activities.threads import Threads
from tests.ssh.conftest import Sshd, free_port
from tests.ssh.relay import Relay


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        yield int(listener.getsockname()[1])


@contextmanager
def access(*, threads: int = 1, patience: float = 5.0) -> Iterator[Access]:
    """With so many threads; a machine may take so long to answer."""
    made = Threads(threads)
    with closing(made), closing(ConnectionPool(connect_deadline_s=patience)) as pool:
        yield Access(pool, made)


async def greeting(through: Access, target: SshTarget) -> bytes:
    """What a command prints there."""
    return await through.run(target, lambda connection, _: connection.exec("echo here").stdout)


async def in_activity(through: Access, target: SshTarget) -> bytes:
    return await ActivityEnvironment().run(greeting, through, target)


async def test_a_hundred_silent_machines_hold_up_no_other(sshd: Sshd, silent: int) -> None:
    with access(threads=1, patience=60) as through:
        away = [asyncio.create_task(in_activity(through, sshd.target(port=silent))) for _ in range(100)]
        await asyncio.sleep(0)
        assert await in_activity(through, sshd.target()) == b"here\n"
        assert not any(task.done() for task in away)
        for task in away:
            task.cancel()
        await asyncio.gather(*away, return_exceptions=True)


async def test_the_connection_that_was_answered_on_is_the_one_that_is_used(sshd: Sshd, relay: Relay) -> None:
    with access() as through:
        target = sshd.target(port=relay.port)
        assert await in_activity(through, target) == b"here\n"
        assert await in_activity(through, target) == b"here\n"
    assert relay.accepted == 1


async def test_a_machine_that_takes_connections_and_is_silent_is_named_so(sshd: Sshd, silent: int) -> None:
    with access(patience=0.2) as through, pytest.raises(ConnectError, match=r"SSH negotiation .* no answer"):
        await in_activity(through, sshd.target(port=silent))


async def test_a_port_that_nobody_listens_on_is_refused_at_once(sshd: Sshd) -> None:
    with pytest.raises(ConnectError, match=r"TCP connect failed .*refused"):
        await reached(sshd.target(port=free_port()), 5)


async def test_a_name_that_does_not_resolve_is_a_failure_to_connect(sshd: Sshd) -> None:
    with pytest.raises(ConnectError, match="TCP connect failed"):
        await reached(sshd.target(address="nowhere.invalid"), 5)


async def test_a_key_that_is_none_leaves_no_connection_open(sshd: Sshd, relay: Relay) -> None:
    target = sshd.target(port=relay.port, private_key="no key")
    with access() as through:
        with pytest.raises(AuthError):
            await in_activity(through, target)
        assert await in_activity(through, sshd.target(port=relay.port)) == b"here\n"
