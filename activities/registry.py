"""Every activity there is, with what each needs; a test finds one that is missing here."""

from collections.abc import Callable, Mapping
from typing import Any

from temporalio.client import Client

from activities.access import Access
from activities.machines import Machines
from activities.nvml_facts import NvmlReader
from activities.records import Records
from activities.secrets import FileSecrets
from activities.ssh.pool import ConnectionPool
from activities.steps.activity import Steps
from activities.steps.slots import Slots
from activities.threads import Threads
from database.unit_of_work import Database
from providers.base import Provider


def activities(
    *,
    database: Database,
    client: Client,
    pool: ConnectionPool,
    secrets: FileSecrets,
    threads: Threads,
    providers: Mapping[str, Provider],
    reach_tries: int,
    lost_after: float,
    slots: int,
) -> list[Callable[..., Any]]:
    """The bound methods that a worker registers."""
    records = Records(database, client, reach_tries=reach_tries)
    access = Access(pool, threads)
    machines = Machines(database, access, secrets, threads, providers)
    steps = Steps(database, access, secrets, Slots(slots), lost_after=lost_after)
    nvml = NvmlReader(database, access, secrets)
    return [
        records.open_operation,
        records.load_batch,
        records.displace,
        records.claim_machine,
        records.end_run,
        records.hold_run,
        records.end_operation,
        records.hand_over_machine,
        records.end_machine_run,
        machines.await_ssh,
        machines.make_plan,
        machines.finish_node,
        machines.reset_machine,
        machines.verify_machine,
        nvml.nvml_facts,
        steps.run_step,
        steps.confirm_cancel,
    ]
