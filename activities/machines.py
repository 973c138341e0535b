"""Reaching, planning, checking and resetting machines. See `MachineActivities` for the signatures."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity

from activities.access import Access
from activities.failures import card, classified, failure, patiently
from activities.secrets import FileSecrets
from activities.signatures import MachineActivities, MachineTask, PlanOutline, StepHeader, Verified
from activities.ssh.connection import Connection
from activities.supervisor.client import Supervisor
from activities.supervisor.spec import MachineFacts
from activities.targets import ClaimedMachine, claimed_machine, held_patiently
from activities.threads import Threads
from activities.waiting import tells_waiting
from database.hardware import promised_gpus
from database.machine_runs import node_ready, note_contact, pin_host_key
from database.run_locks import share_live_run
from database.steps import plan_of_run, store_plan
from database.tables import Node, ProfileContentRow
from database.unit_of_work import Database
from domain.failures import FailureClass
from domain.states import RunState
from profiles.canonical import from_canonical
from profiles.compiling import compile_plan
from profiles.kinds.base import Phase
from profiles.plan import Plan
from providers.base import Guard, Provider, ProviderError

R = TypeVar("R")
UNCONTAINED = (
    "the machine has neither control groups (v2) that root may write nor perl nor python3, so a step on it "
    "could not be ended for certain; install one of the two"
)
# How long the records may take to say that a machine is still this run's, in seconds.
GUARD_SECONDS = 20.0


class Machines(MachineActivities):
    """`providers` are found by the scheme of a machine's management address, such as `sandbox`."""

    def __init__(
        self,
        database: Database,
        access: Access,
        secrets: FileSecrets,
        threads: Threads,
        providers: Mapping[str, Provider],
    ) -> None:
        self._database = database
        self._access = access
        self._secrets = secrets
        self._threads = threads
        self._providers = providers

    @activity.defn(name="await_ssh")
    async def await_ssh(self, task: MachineTask) -> None:
        """One short try. Raising the claim token also ends what an earlier run left on the machine."""
        held = await held_patiently(self._database, self._secrets, task)
        async with classified(held.label), tells_waiting(self._database, task.run_id):
            await self._with_supervisor(held, lambda supervisor, _: supervisor.raise_token(task.token))

    @activity.defn(name="make_plan")
    async def make_plan(self, task: MachineTask) -> PlanOutline:
        held = await held_patiently(self._database, self._secrets, task)
        async with classified(held.label), tells_waiting(self._database, task.run_id):
            facts, host_key = await self._facts(held)
            plan = await patiently(lambda: self._store_plan(held, facts, host_key))
            return outline(plan, held.run.first_step)

    @activity.defn(name="finish_node")
    async def finish_node(self, task: MachineTask) -> None:
        """The health gate: the machine still answers, under the node's own name."""
        held = await held_patiently(self._database, self._secrets, task)
        if held.run.state == RunState.SUCCEEDED:
            # By an earlier try whose answer was lost; how the machine is since then is not this run's.
            return
        async with classified(held.label), tells_waiting(self._database, task.run_id):
            facts, host_key = await self._facts(held)
            if facts.hostname != held.run.name:
                message = f"the machine calls itself {facts.hostname!r}, not {held.run.name!r}"
                raise failure(card(FailureClass.HEALTH, message, machine=held.label))
            await patiently(lambda: self._node_is_ready(held, facts, host_key))

    @activity.defn(name="reset_machine")
    async def reset_machine(self, task: MachineTask) -> None:
        """Wipes the disk through the provider; without one, removes what the supervisor kept."""
        held = await held_patiently(self._database, self._secrets, task)
        async with classified(held.label), tells_waiting(self._database, task.run_id):
            address = held.machine.bmc_address
            if address is None:
                await self._with_supervisor(held, lambda supervisor, _: supervisor.purge())
                return
            provider = self._provider(address)
            guard = self._still_held(task)
            host_key = await self._threads.run(lambda _: provider.reimage(address, guard))
            await patiently(lambda: self._pin(held, host_key))

    @activity.defn(name="verify_machine")
    async def verify_machine(self, task: MachineTask) -> Verified:
        """Reaches the machine and reads its facts; its host key is pinned at the first contact."""
        held = await held_patiently(self._database, self._secrets, task)
        async with classified(held.label), tells_waiting(self._database, task.run_id):
            await self._pin_announced_key(held)
            held = await held_patiently(self._database, self._secrets, task)
            await self._with_supervisor(held, lambda supervisor, _: supervisor.raise_token(task.token))
            facts, host_key = await self._facts(held)
            if facts.containment == "none":
                raise failure(card(FailureClass.HEALTH, UNCONTAINED, machine=held.label))
            return Verified(gpus=await patiently(lambda: self._note(held, facts, host_key)))

    def _still_held(self, task: MachineTask) -> Guard:
        """Asks the records once more from a thread: this worker may have been stopped since they were read.

        No token of a claim keeps a provider from wiping a machine that is another run's by now.
        """
        loop = asyncio.get_running_loop()

        async def check() -> None:
            async with self._database.begin() as session:
                held = await claimed_machine(session, self._secrets, task)
                await share_live_run(session, held.run)

        return lambda: asyncio.run_coroutine_threadsafe(check(), loop).result(GUARD_SECONDS)

    async def _store_plan(self, held: ClaimedMachine, facts: MachineFacts, host_key: str) -> Plan:
        async with self._database.begin() as session:
            await _note(held, facts, host_key, session)
            if held.run.plan_digest is not None:
                # Frozen: by an earlier try of this activity, or by the run that this one retries.
                return Plan.from_canonical(await plan_of_run(session, held.run.id))
            plan = await _compiled(session, held)
            await store_plan(session, held.run.id, plan.digest(), plan.canonical())
        return plan

    async def _node_is_ready(self, held: ClaimedMachine, facts: MachineFacts, host_key: str) -> None:
        async with self._database.begin() as session:
            await _note(held, facts, host_key, session)
            await node_ready(session, held.run.id, hostname=facts.hostname, address=held.machine.address)

    async def _note(self, held: ClaimedMachine, facts: MachineFacts, host_key: str) -> int:
        """Returns how many GPUs its machine type promises."""
        async with self._database.begin() as session:
            await _note(held, facts, host_key, session)
            return await promised_gpus(session, held.machine.id)

    async def _pin(self, held: ClaimedMachine, host_key: str) -> None:
        async with self._database.begin() as session:
            await pin_host_key(session, held.machine.id, host_key)

    async def _pin_announced_key(self, held: ClaimedMachine) -> None:
        """What the provider announces is trusted before what a machine shows."""
        address = held.machine.bmc_address
        if held.machine.host_key is not None or address is None:
            return
        provider = self._provider(address)
        announced = await self._threads.run(lambda _: provider.host_key(address))
        if announced is not None:
            await patiently(lambda: self._pin(held, announced))

    def _provider(self, address: str) -> Provider:
        scheme = address.partition("://")[0]
        try:
            return self._providers[scheme]
        except KeyError:
            served = ", ".join(sorted(self._providers)) or "none"
            raise ProviderError(
                address, f"this worker serves no provider {scheme!r} (it serves: {served})"
            ) from None

    async def _facts(self, held: ClaimedMachine) -> tuple[MachineFacts, str]:
        return await self._with_supervisor(
            held, lambda supervisor, connection: (supervisor.facts(), connection.host_key)
        )

    async def _with_supervisor(self, held: ClaimedMachine, work: Callable[[Supervisor, Connection], R]) -> R:
        return await self._access.run(
            held.target, lambda connection, _: work(Supervisor(connection), connection)
        )


async def _compiled(session: AsyncSession, held: ClaimedMachine) -> Plan:
    """The plan of a node's run, from the profile version that was frozen when it was asked for."""
    phase = Phase(held.run.action)
    name, ref, digest, content = (
        await session.execute(
            select(Node.name, Node.profile_ref, Node.profile_digest, ProfileContentRow.content)
            .join(ProfileContentRow, ProfileContentRow.digest == Node.profile_digest)
            .where(Node.id == held.run.node_id)
        )
    ).one()
    return compile_plan(
        from_canonical(content),
        profile=ref,
        content_digest=digest,
        phase=phase,
        hostname=name if phase is Phase.CREATE else None,
    )


def outline(plan: Plan, first_step: int) -> PlanOutline:
    """What of a plan goes through Temporal: headers of the steps from `first_step` on, no bodies."""
    return PlanOutline(
        digest=plan.digest(),
        total=len(plan.steps),
        steps=[
            StepHeader(
                position=step.position,
                name=step.name,
                uses=step.uses,
                summary=step.summary,
                timeout_seconds=step.timeout_seconds,
                attempts=step.attempts,
                backoff_seconds=step.backoff_seconds,
                has_check=step.check is not None,
                on_failure=step.on_failure,
            )
            for step in plan.steps[first_step:]
        ],
    )


async def _note(held: ClaimedMachine, facts: MachineFacts, host_key: str, session: AsyncSession) -> None:
    await note_contact(
        session, held.machine.id, facts=asdict(facts), boot_id=facts.boot_id, host_key=host_key
    )
