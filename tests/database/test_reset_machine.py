"""Wiping a machine: asked for anew at the last moment, for no claim's token keeps a provider from it."""

import asyncio
from collections.abc import Awaitable, Callable
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
from database.machine_runs import machine_ready
from database.operations import NewRun
from database.tables import Claim, Machine
from domain.failures import FailureClass
from domain.states import MachineState
from providers.base import Guard, PowerState, unguarded
from tests.database.scenes import claimed, submit
from tests.database.world import World

KEY = "ssh-ed25519 AAAA"


class Frozen:
    """A provider at whose door the worker is stopped for a while, in which the world goes on."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._meanwhile = meanwhile
        self._loop = asyncio.get_running_loop()
        self.wiped = 0

    async def _go_on(self) -> None:
        await self._meanwhile()

    def reimage(self, address: str, guard: Guard = unguarded) -> str:
        """Wipes it when the guard lets it."""
        asyncio.run_coroutine_threadsafe(self._go_on(), self._loop).result(10)
        guard()
        self.wiped += 1
        return KEY

    def power_on(self, address: str) -> None:
        """Not asked here."""

    def power_off(self, address: str) -> None:
        """Not asked here."""

    def reboot(self, address: str) -> None:
        """Not asked here."""

    def power_state(self, address: str) -> PowerState:
        """Not asked here."""
        return PowerState.UNKNOWN

    def host_key(self, address: str) -> str | None:
        """Not asked here."""
        return None


@pytest.mark.parametrize("meanwhile", ["nothing", "it is another run's", "the run has ended"])
async def test_a_machine_is_wiped_only_while_it_is_still_the_runs(
    world: World, tmp_path: Path, meanwhile: str
) -> None:
    (machine,) = await world.machines(1, bmc_address=f"frozen://{world.tenant}", state=MachineState.CLEANING)
    run_id = await submit(world, NewRun(name="m-1", generation=1, machine_id=machine))
    token = await claimed(world, run_id)
    assert token is not None

    async def goes_on() -> None:
        if meanwhile == "it is another run's":
            await world.set(Claim, Claim.machine_id == machine, token=token + 1)
        elif meanwhile == "the run has ended":
            async with world.database.begin() as session:
                await machine_ready(session, run_id)

    (tmp_path / world.tenant).mkdir()
    (tmp_path / world.tenant / "key").write_text("not used")
    provider, threads = Frozen(goes_on), Threads(1)
    machines = Machines(
        world.database,
        Access(ConnectionPool(), threads),
        FileSecrets(tmp_path),
        threads,
        {"frozen": provider},
    )
    task = MachineTask(run_id=run_id, machine_id=machine, token=token)
    try:
        if meanwhile == "nothing":
            await ActivityEnvironment().run(machines.reset_machine, task)
        else:
            with pytest.raises(ApplicationError) as refused:
                await ActivityEnvironment().run(machines.reset_machine, task)
            assert refused.value.type == FailureClass.SUPERSEDED
            assert refused.value.non_retryable
    finally:
        threads.close()
    assert provider.wiped == (1 if meanwhile == "nothing" else 0)
    pinned = await world.count(Machine, Machine.id == machine, Machine.host_key == KEY)
    assert pinned == provider.wiped
