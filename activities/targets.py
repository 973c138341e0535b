"""From a machine task to the machine's address and keys, if its claim still holds."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from activities.failures import classified, patiently
from activities.secrets import FileSecrets
from activities.signatures import MachineTask, StepTask
from activities.ssh.target import SshTarget
from database.run_locks import SupersededError
from database.tables import Claim, Cluster, Machine, Node, Run
from database.unit_of_work import Database


@dataclass(frozen=True, slots=True)
class ClaimedMachine:
    """A machine, the run that holds it, and how to log in."""

    machine: Machine
    run: Run
    target: SshTarget
    cluster: str | None

    @property
    def label(self) -> str:
        """How cards name the machine: `local-1 (10.1.2.3:22)`."""
        return f"{self.machine.name} ({self.target.endpoint})"


async def claimed_machine(
    session: AsyncSession, secrets: FileSecrets, task: MachineTask | StepTask
) -> ClaimedMachine:
    """Raises SupersededError when the claim has passed to another run, SecretError without a usable key."""
    machine, token, run, cluster = (
        await session.execute(
            select(Machine, Claim.token, Run, Cluster.name)
            .join(Claim, Claim.machine_id == Machine.id)
            .join(Run, Run.id == task.run_id)
            .outerjoin(Node, Node.id == Run.node_id)
            .outerjoin(Cluster, Cluster.id == Node.cluster_id)
            .where(Machine.id == task.machine_id)
        )
    ).one()
    if token != task.token:
        raise SupersededError(
            f"machine {machine.name} has passed to another run: its claim token is {token}, "
            f"this run's was {task.token}"
        )
    target = SshTarget(
        address=machine.address,
        port=machine.port,
        user=machine.ssh_user,
        private_key=secrets.resolve(machine.tenant_id, machine.key_secret),
        host_key=machine.host_key,
    )
    return ClaimedMachine(machine=machine, run=run, target=target, cluster=cluster)


async def held_patiently(
    database: Database, secrets: FileSecrets, task: MachineTask | StepTask
) -> ClaimedMachine:
    """`claimed_machine` for activities whose tries are counted: a database that is away is waited for."""

    async def read() -> ClaimedMachine:
        async with database.begin() as session:
            return await claimed_machine(session, secrets, task)

    async with classified():
        return await patiently(read)
