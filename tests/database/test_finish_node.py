"""The health gate's activity: a try whose answer was lost is not held against the machine."""

from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.access import Access
from activities.machines import Machines
from activities.secrets import FileSecrets
from activities.signatures import MachineTask
from activities.ssh.pool import ConnectionPool
from activities.threads import Threads
from database.machine_runs import node_ready
from domain.failures import FailureClass
from tests.database.scenes import claimed, created
from tests.database.world import World
from tests.ssh.conftest import make_key


async def test_a_node_that_this_run_made_ready_is_ready_though_its_machine_answers_no_more(
    world: World, tmp_path: Path
) -> None:
    run, node = await created(world)
    token = await claimed(world, run.id)
    assert token is not None
    (tmp_path / world.tenant).mkdir()
    make_key(tmp_path / world.tenant / "key")
    threads = Threads(1)
    access = Access(ConnectionPool(), threads)
    machines = Machines(world.database, access, FileSecrets(tmp_path), threads, {})
    task = MachineTask(run_id=run.id, machine_id=str(node.machine_id), token=token)
    try:
        with pytest.raises(ApplicationError) as failed:
            await ActivityEnvironment().run(machines.finish_node, task)
        assert failed.value.type == FailureClass.CONNECT
        async with world.database.begin() as session:
            await node_ready(session, run.id, hostname=run.name, address="192.0.2.1")
        await ActivityEnvironment().run(machines.finish_node, task)
    finally:
        threads.close()
