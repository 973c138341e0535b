"""The activity that reads a machine's GPUs when it joins and when it is cleaned."""

import threading

from temporalio import activity

from activities.access import Access
from activities.failures import card, classified, failure, patiently
from activities.nvml.client import Reading, read_facts
from activities.secrets import FileSecrets
from activities.signatures import MachineTask, NvmlActivities, NvmlReport
from activities.ssh.connection import Connection
from activities.targets import ClaimedMachine, held_patiently
from activities.waiting import tells_waiting
from database.hardware import store_hardware
from database.unit_of_work import Database
from domain.failures import FailureClass

#: What a profile can still put right: a machine may join without driver or python3, or with an old driver.
TOLERATED = frozenset({FailureClass.NVML_ABSENT, FailureClass.NVML_FUNCTION, FailureClass.VALIDATION})


class NvmlReader(NvmlActivities):
    """See `NvmlActivities` for the signature."""

    def __init__(self, database: Database, access: Access, secrets: FileSecrets) -> None:
        self._database = database
        self._access = access
        self._secrets = secrets

    @activity.defn(name="nvml.facts")
    async def nvml_facts(self, task: MachineTask) -> NvmlReport:
        """Stores what is known even where it fails, so that a lost GPU's neighbours can be seen."""
        held = await held_patiently(self._database, self._secrets, task)
        async with classified(held.label), tells_waiting(self._database, task.run_id):
            reading = await self._access.run(
                held.target, lambda connection, stop: _read(connection, held, task, stop)
            )
            assert reading is not None, "only a cancelled activity stops it, and that raises"
            problem = await patiently(lambda: self._store(held, reading))
        if reading.failure is not None and reading.failure[0] not in TOLERATED:
            raise failure(card(*reading.failure, machine=held.label))
        driver = reading.facts.driver
        return NvmlReport(
            gpus=len(reading.facts.gpus), driver=driver.version if driver else None, problem=problem
        )

    async def _store(self, held: ClaimedMachine, reading: Reading) -> str | None:
        failed = reading.failure
        async with self._database.begin() as session:
            return await store_hardware(
                session,
                held.machine.id,
                reading.facts.model_dump(mode="json", by_alias=True),
                (str(failed[0]), failed[1]) if failed else None,
            )


def _read(
    connection: Connection, held: ClaimedMachine, task: MachineTask, stop: threading.Event
) -> Reading | None:
    return read_facts(
        connection,
        python3=held.machine.facts.get("python3"),
        key=f"{task.run_id}.nvml",
        token=task.token,
        should_stop=stop.is_set,
    )
