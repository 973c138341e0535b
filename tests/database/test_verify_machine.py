"""What a machine must be able to do before it may be used at all, asked of a real one."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.access import Access
from activities.machines import UNCONTAINED, Machines
from activities.secrets import FileSecrets
from activities.signatures import MachineTask
from activities.ssh.pool import ConnectionPool
from activities.threads import Threads
from database.operations import NewRun
from domain.failures import FailureClass
from domain.states import MachineState
from tests.database.scenes import claimed, submit
from tests.database.world import World
from tests.fixtures.sandbox_machine import sandbox_machine


@pytest.mark.system
async def test_a_machine_whose_steps_could_not_be_ended_for_certain_is_refused(
    world: World, tmp_path: Path
) -> None:
    with sandbox_machine(tmp_path, "verify") as sandbox, closing(ConnectionPool()) as pool:
        (tmp_path / world.tenant).mkdir()
        shutil.copy(sandbox.key_file, tmp_path / world.tenant / "key")
        values = {"address": sandbox.address, "state": MachineState.JOINING}
        (machine,) = await world.machines(1, "cpu", **values)
        run_id = await submit(world, NewRun(name="m-1", generation=1, machine_id=machine), action="join")
        token = await claimed(world, run_id)
        assert token is not None
        threads = Threads(1)
        machines = Machines(world.database, Access(pool, threads), FileSecrets(tmp_path), threads, {})
        task = MachineTask(run_id=run_id, machine_id=machine, token=token)
        try:
            await ActivityEnvironment().run(machines.verify_machine, task)
            # As its supervisor finds it where there is neither cgroup v2 nor perl nor python3.
            done = sandbox.shell("sed -i '1s/ [^ ]* / none /' /var/lib/bringup/way")
            assert done.returncode == 0, done.stderr
            with pytest.raises(ApplicationError) as refused:
                await ActivityEnvironment().run(machines.verify_machine, task)
        finally:
            threads.close()
        assert (refused.value.type, refused.value.non_retryable) == (FailureClass.HEALTH, True)
        assert UNCONTAINED in refused.value.message
