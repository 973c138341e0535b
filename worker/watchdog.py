"""The watchdog: operations that the records call unfinished, held against what the workflow engine says.

A workflow that somebody terminated by hand, or that the engine lost, can record nothing any more. The
watchdog closes its records with a card, so that a node never stays in Preparing for ever. It also ends the
reservations whose time is over.
"""

import asyncio
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from database.cancellation import cancel_operation
from database.operations import close_operation
from database.outbox import operations_to_check
from database.reservations import end_reservation, expired_reservations
from database.run_ends import end_run
from database.runs import open_runs
from database.tables import Operation, Run
from database.unit_of_work import Database
from domain.failures import FailureCard, FailureClass, failure_card
from domain.states import ENDING_RUN_STATES, RunState
from domain.workflow_ids import operation_workflow_id
from worker.children import RPC_TIMEOUT, running_child

log = structlog.get_logger(__name__)
AT_A_TIME = 50
_LOST = "lost"
OVERDUE = "past its deadline: what was left of it is being ended"


class Watchdog:
    """Several may run: each takes the operations whose check is due, and sets their next one."""

    def __init__(self, database: Database, client: Client, *, round_seconds: float) -> None:
        self._database = database
        self._client = client
        self._round = timedelta(seconds=round_seconds)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._round_once()
            except (SQLAlchemyError, OSError, RPCError, RuntimeError) as error:
                log.warning("watchdog: database or workflow engine is away", error=str(error))
            await asyncio.sleep(self._round.total_seconds())

    async def _round_once(self) -> None:
        await self._end_expired()
        while True:
            async with self._database.begin() as session:
                due = await operations_to_check(session, 2 * self._round, AT_A_TIME)
            for operation in due:
                try:
                    await self._check(operation)
                except (SQLAlchemyError, OSError, RPCError, RuntimeError):
                    raise
                except Exception:
                    # One operation in a state that nobody thought of must not keep the others from help.
                    log.exception("watchdog: cannot close operation", operation=str(operation.id))
            if len(due) < AT_A_TIME:
                return

    async def _end_expired(self) -> None:
        """Reservations whose time is over are given back."""
        while True:
            async with self._database.begin() as session:
                due = await expired_reservations(session, AT_A_TIME)
            for reservation in due:
                async with self._database.begin() as session:
                    session.add(reservation)
                    await end_reservation(session, reservation, actor="the watchdog, as it had expired")
            if len(due) < AT_A_TIME:
                return

    async def _check(self, operation: Operation) -> None:
        status = await self._status(operation_workflow_id(operation.id))
        if status == WorkflowExecutionStatus.RUNNING.name:
            # A held one waits for a person, for as long as that takes.
            if datetime.now(UTC) > operation.deadline and operation.state != RunState.HELD:
                await self._end_overdue(operation)
            return
        async with self._database.begin() as session:
            runs = await open_runs(session, operation.id)
        waiting = False
        for run in runs:
            # Being cancelled, say: its own workflow will record its end.
            if await running_child(self._client, run) is not None:
                waiting = True
            else:
                await self._close(run, status)
        if waiting:
            return
        async with self._database.begin() as session:
            state = await close_operation(session, operation.id)
        log.warning(
            "closed the records of a dead workflow", operation=str(operation.id), was=status, state=state
        )

    async def _end_overdue(self, operation: Operation) -> None:
        """Has what is left of it ended, once; what cannot be ended stays as it is, and is told."""
        if OVERDUE in operation.message or operation.canceled_by is not None:
            return
        log.error("operation past its deadline", operation=str(operation.id))
        if operation.action == "terminate":
            # Its nodes end whatever becomes of its steps, so only these are cut short.
            handle = self._client.get_workflow_handle(operation_workflow_id(operation.id))
            await handle.cancel(rpc_timeout=RPC_TIMEOUT)
        async with self._database.begin() as session:
            session.add(operation)
            if operation.action != "terminate":
                await cancel_operation(session, operation, actor="the watchdog, at the operation's deadline")
            operation.message = "; ".join(filter(None, (operation.message, OVERDUE)))

    async def _close(self, run: Run, status: str) -> None:
        async with self._database.begin() as session:
            if run.state in ENDING_RUN_STATES:
                # The end that was asked for; whether its machine has stopped is proved after it, if need be.
                await end_run(session, run.id, RunState.CANCELED, cancelled_unproven_card(run, status))
            else:
                await end_run(session, run.id, RunState.FAILED, dead_workflow_card(run, status))

    async def _status(self, workflow: str) -> str:
        try:
            described = await self._client.get_workflow_handle(workflow).describe(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return _LOST
            raise
        return described.status.name if described.status else _LOST


def dead_workflow_card(run: Run, status: str) -> FailureCard:
    """Says what became of the workflow, and whose records these are."""
    return _card(run, FailureClass.INTERNAL, _gone(run, status))


def cancelled_unproven_card(run: Run, status: str) -> FailureCard:
    """Says that the cancel was not seen to its end by the workflow that was to do it."""
    return _card(
        run, FailureClass.CANCELLED, f"{run.action} of {run.name} was cancelled, but {_gone(run, status)}"
    )


def _gone(run: Run, status: str) -> str:
    what = "the workflow engine no longer knows it" if status == _LOST else f"it was {status.lower()}"
    return f"the workflow that was to {run.action} {run.name} is gone: {what}"


def _card(run: Run, failure_class: FailureClass, message: str) -> FailureCard:
    return failure_card(
        failure_class,
        message,
        seen=datetime.now(UTC),
        workflow_id=operation_workflow_id(run.operation_id),
    )
