"""Bookkeeping: operations, runs, claims and custody. See `RecordActivities` for the signatures."""

from datetime import timedelta

from sqlalchemy import select
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from activities.failures import classified
from activities.signatures import (
    BatchRef,
    BatchRuns,
    Claimed,
    CustodyTask,
    DisplaceRequest,
    HoldRequest,
    OperationEnd,
    OperationOutline,
    OperationRef,
    RecordActivities,
    RunEnd,
    RunHeader,
    RunRef,
)
from activities.waiting import tells_waiting
from database import operations, run_ends, runs
from database.custody import hand_over_node
from database.holding import hold_run
from database.machine_runs import machine_ready
from database.operations import BATCH_SIZE
from database.tables import Operation
from database.unit_of_work import Database
from domain.failures import FailureCard

RPC_TIMEOUT = timedelta(seconds=10)


class Records(RecordActivities):
    """Every method is one transaction, may be repeated, and says nothing new the second time."""

    def __init__(self, database: Database, client: Client, *, reach_tries: int) -> None:
        self._database = database
        self._client = client
        self._reach_tries = reach_tries

    @activity.defn(name="open_operation")
    async def open_operation(self, ref: OperationRef) -> OperationOutline:
        async with classified(), self._database.begin() as session:
            found = await runs.begin_operation(session, ref.operation_id)
        return OperationOutline(
            action=found.action,
            tenant_id=found.tenant_id,
            cluster=found.cluster,
            runs=found.runs,
            batches=-(-found.runs // BATCH_SIZE),
        )

    @activity.defn(name="load_batch")
    async def load_batch(self, ref: BatchRef) -> BatchRuns:
        async with classified(), self._database.begin() as session:
            found = await runs.begin_operation(session, ref.operation_id)
            rows = await runs.runs_of_batch(session, ref.operation_id, ref.batch)
        return BatchRuns(
            runs=[
                RunHeader(
                    run_id=row.id,
                    operation_id=row.operation_id,
                    kind=row.kind,
                    subject=str(row.node_id or row.machine_id),
                    name=row.name,
                    action=row.action,
                    generation=row.generation,
                    tenant_id=found.tenant_id,
                    cluster=found.cluster,
                )
                for row in rows
            ]
        )

    @activity.defn(name="displace")
    async def displace(self, request: DisplaceRequest) -> None:
        """Asks the very run that held the workflow id at the first try to stop; tried again until it has.

        One short try holds a worker's place no longer than it takes: what it waits for may need that place.
        """
        told = activity.info().heartbeat_details
        handle = self._client.get_workflow_handle(request.workflow_id, run_id=told[0] if told else None)
        try:
            described = await handle.describe(rpc_timeout=RPC_TIMEOUT)
            if described.close_time is not None:
                return
            if request.cancel and not told:
                held = self._client.get_workflow_handle(request.workflow_id, run_id=described.run_id)
                await held.cancel(rpc_timeout=RPC_TIMEOUT)
            # Whoever takes the id next is not meant: later tries keep to this run. Not said before the cancel
            # has been taken, which a later try would then leave out.
            activity.heartbeat(described.run_id)
        except RPCError as error:
            # Gone, or closed between two calls: nothing is left to displace.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return
        raise ApplicationError(
            f"workflow {request.workflow_id} has not ended yet",
            type="still-running",
            category=ApplicationErrorCategory.BENIGN,
        )

    @activity.defn(name="claim_machine")
    async def claim_machine(self, ref: RunRef) -> Claimed:
        async with (
            classified(),
            tells_waiting(self._database, ref.run_id),
            self._database.begin() as session,
        ):
            run, machine = await runs.claim_machine(session, ref.run_id)
            assert run.claim_token is not None, "a claimed run has its token"
            return Claimed(
                machine_id=machine.id,
                machine=machine.name,
                address=machine.address,
                token=run.claim_token,
                reach_tries=self._reach_tries,
            )

    @activity.defn(name="end_run")
    async def end_run(self, end: RunEnd) -> None:
        async with classified(), self._database.begin() as session:
            await run_ends.end_run(session, end.run_id, end.state, end.card)

    @activity.defn(name="hold_run")
    async def hold_run(self, request: HoldRequest) -> None:
        async with classified(), self._database.begin() as session:
            await hold_run(session, request.run_id, request.number, request.card)

    @activity.defn(name="end_operation")
    async def end_operation(self, ref: OperationRef) -> OperationEnd:
        async with classified(), self._database.begin() as session:
            state = await operations.close_operation(session, ref.operation_id)
            said = await session.scalar(select(Operation.card).where(Operation.id == ref.operation_id))
            reason = FailureCard.model_validate(said).text() if said else None
            return OperationEnd(state=state, reason=reason)

    @activity.defn(name="hand_over_machine")
    async def hand_over_machine(self, task: CustodyTask) -> None:
        async with classified(), self._database.begin() as session:
            await hand_over_node(session, task.run_id, task.card)

    @activity.defn(name="end_machine_run")
    async def end_machine_run(self, ref: RunRef) -> None:
        async with classified(), self._database.begin() as session:
            await machine_ready(session, ref.run_id)
