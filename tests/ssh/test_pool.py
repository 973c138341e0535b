"""One transport per machine, shared, bounded, and replaced when it breaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from activities.ssh.connection import Connection
from activities.ssh.errors import ConnectError, SshError
from activities.ssh.pool import ConnectionPool
from activities.ssh.target import SshTarget
from tests.ssh.conftest import Sshd, free_port
from tests.ssh.helpers import eventually
from tests.ssh.relay import Relay

MakePool = Callable[..., ConnectionPool]


@pytest.fixture
def make_pool() -> Iterator[MakePool]:
    pools: list[ConnectionPool] = []

    def make(**options: float) -> ConnectionPool:
        pools.append(ConnectionPool(**options))  # type: ignore[arg-type]
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def use(pool: ConnectionPool, target: SshTarget) -> Connection:
    with pool.connection(target) as connection:
        assert connection.exec("true").exit_status == 0
        return connection


def test_eight_first_users_share_one_connect(sshd: Sshd, relay: Relay, make_pool: MakePool) -> None:
    pool, target = make_pool(), sshd.target(port=relay.port)
    with ThreadPoolExecutor(8) as threads:
        connections = list(threads.map(lambda _: use(pool, target), range(16)))
    assert len({id(connection) for connection in connections}) == 1
    assert (relay.accepted, pool.size) == (1, 1)


def test_another_user_key_or_host_key_gets_its_own_connection(sshd: Sshd, make_pool: MakePool) -> None:
    pool = make_pool()
    first = use(pool, sshd.target())
    other_key = use(pool, sshd.target(private_key=(sshd.folder / "rsa").read_text()))
    unpinned = use(pool, sshd.target(host_key=None))
    assert len({id(first), id(other_key), id(unpinned)}) == 3


def test_an_idle_connection_is_closed(target: SshTarget, make_pool: MakePool) -> None:
    pool = make_pool(max_idle_s=0.2)
    connection = use(pool, target)
    eventually(lambda: not connection.alive and pool.size == 0, "the idle connection is closed")


def test_a_connection_in_use_is_not_closed_as_idle(target: SshTarget, make_pool: MakePool) -> None:
    pool = make_pool(max_idle_s=0.1)
    with pool.connection(target) as connection:
        assert connection.exec("sleep 0.5").exit_status == 0
        assert pool.size == 1


def test_a_broken_connection_is_replaced(sshd: Sshd, relay: Relay, make_pool: MakePool) -> None:
    pool, target = make_pool(), sshd.target(port=relay.port)
    first = use(pool, target)
    relay.cut()
    eventually(lambda: not first.alive, "the break is noticed")
    assert use(pool, target) is not first
    assert relay.accepted == 2


def test_a_connection_that_breaks_in_use_is_dropped(sshd: Sshd, relay: Relay, make_pool: MakePool) -> None:
    pool, target = make_pool(), sshd.target(port=relay.port)
    with pool.connection(target) as connection:
        relay.cut()
        with pytest.raises(SshError):
            connection.exec("true")
    eventually(lambda: not connection.alive, "the break is noticed")
    assert use(pool, target) is not connection


def test_a_ninth_user_waits_for_a_channel(target: SshTarget, make_pool: MakePool) -> None:
    pool = make_pool(max_channels=1, wait_s=10)
    entered = threading.Event()

    def second() -> None:
        with pool.connection(target):
            entered.set()

    with pool.connection(target):
        thread = threading.Thread(target=second)
        thread.start()
        assert not entered.wait(0.3)
    assert entered.wait(5)
    thread.join(5)


def test_waiting_for_a_channel_ends_with_a_typed_error(target: SshTarget, make_pool: MakePool) -> None:
    pool = make_pool(max_channels=1, wait_s=0.2)
    with (
        pool.connection(target),
        pytest.raises(ConnectError, match=r"no free connection within 0\.2 s"),
        pool.connection(target),
    ):
        pass


def test_the_longest_idle_connection_makes_room(sshd: Sshd, make_pool: MakePool) -> None:
    pool = make_pool(max_connections=1, wait_s=1)
    first = use(pool, sshd.target())
    use(pool, sshd.target(host_key=None))
    assert pool.size == 1
    eventually(lambda: not first.alive, "the older connection is closed")


def test_a_failed_connect_fails_all_that_waited_for_it_and_can_be_tried_again(
    sshd: Sshd, make_pool: MakePool
) -> None:
    pool = make_pool(connect_deadline_s=1)
    target = sshd.target(port=free_port())

    def attempt(_: int) -> str:
        with pytest.raises(SshError) as caught:
            use(pool, target)
        return caught.value.failure_class

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(attempt, range(4))) == {"connect"}
    assert pool.size == 0


def test_a_closed_pool_refuses_and_leaves_nothing_open(target: SshTarget, make_pool: MakePool) -> None:
    pool = make_pool()
    connection = use(pool, target)
    pool.close()
    assert not connection.alive
    with pytest.raises(ConnectError, match="pool is closed"):
        use(pool, target)
