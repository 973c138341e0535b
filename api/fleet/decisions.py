"""operations.cancel, retry, resume, abort: what a person decides about work that runs or has failed."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.cluster.models import RequestId, RunNames
from api.context import Context
from api.fleet.fields import OperationId, TenantInput
from api.fleet.methods import add_method
from api.fleet.operations import shown
from database.cancellation import cancel_operation
from database.holding import decide
from database.operation_queries import find_operation
from database.retrying import RetryFrom, retry_operation
from domain.holds import Verdict
from domain.permissions import Permission
from domain.unfinished import Unfinished

router = APIRouter()

_Kind = Literal["failed", "canceled", "unreachable", "not_started"]


class Decision(TenantInput):
    """Input of cancel, resume and abort; without `names` every run is meant that can be."""

    operationId: OperationId  # noqa: N815
    names: RunNames | None = None


class RetryInput(Decision):
    """operations.retry; `only` says which kinds of unsuccessful runs are meant, `from` where they begin."""

    only: Annotated[list[_Kind], Field(min_length=1, max_length=100)] | None = None
    begin: Literal["stopped", "start"] = Field(default="stopped", alias="from")
    requestId: RequestId | None = None  # noqa: N815


async def cancel(
    context: Context, session: AsyncSession, caller: Caller, body: Decision
) -> dict[str, object]:
    """Asks for the end of an operation, or of its runs of some names; asked twice it answers the same."""
    operation = await find_operation(session, caller.tenant_id, body.operationId)
    caller.authorize()
    names = await cancel_operation(session, operation, actor=caller.name, names=body.names)
    return {"operation": await shown(context, session, operation), "names": names}


async def _decided(
    context: Context, session: AsyncSession, caller: Caller, body: Decision, verdict: Verdict
) -> dict[str, object]:
    operation = await find_operation(session, caller.tenant_id, body.operationId)
    caller.authorize()
    names = await decide(session, operation, verdict, actor=caller.name, names=body.names)
    return {"operation": await shown(context, session, operation), "names": names}


async def resume(
    context: Context, session: AsyncSession, caller: Caller, body: Decision
) -> dict[str, object]:
    """Held runs do the step that failed again, and go on."""
    return await _decided(context, session, caller, body, Verdict.RESUME)


async def abort(context: Context, session: AsyncSession, caller: Caller, body: Decision) -> dict[str, object]:
    """Held runs are given up: they end as failed, with the failure of the step."""
    return await _decided(context, session, caller, body, Verdict.ABORT)


async def retry(
    context: Context, session: AsyncSession, caller: Caller, body: RetryInput
) -> dict[str, object]:
    """A new operation for the runs that did not succeed, with the plans that were frozen for them."""
    operation = await find_operation(session, caller.tenant_id, body.operationId)
    caller.authorize()
    done = await retry_operation(
        session,
        operation,
        actor=caller.name,
        only=frozenset(map(Unfinished, body.only)) if body.only else frozenset(Unfinished),
        names=body.names,
        begin=RetryFrom(body.begin),
        request_id=body.requestId,
    )
    left = [{"name": one.name, "reason": one.reason} for one in done.left]
    return {"operationId": str(done.operation_id), "retried": done.retried, "left": left}


_OPERATE = Permission.OPERATIONS_OPERATE
add_method(router, "operations", "cancel", _OPERATE, Decision, cancel)
add_method(router, "operations", "retry", _OPERATE, RetryInput, retry)
add_method(router, "operations", "resume", _OPERATE, Decision, resume)
add_method(router, "operations", "abort", _OPERATE, Decision, abort)
