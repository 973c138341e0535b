"""nodes.join, get, list, assignPool: the machines."""

import ipaddress
import re
from typing import Annotated

from fastapi import APIRouter
from pydantic import AfterValidator, Field, StringConstraints
from pydantic.alias_generators import to_camel
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.bodies import Input
from api.cluster.records import moment
from api.context import Context
from api.fleet.fields import (
    ListInput,
    Name,
    NodeId,
    PoolId,
    SecretRef,
    SiteId,
    TenantInput,
    TypeName,
    page_body,
)
from api.fleet.methods import add_method
from database import machines
from database.pools import own_pool, pools_of
from database.refusals import Detail, invalid
from database.sites import find_site
from database.tables import Machine
from database.waiting import waiting_of_machines
from domain.permissions import ITEMS, Permission, of_pool
from domain.states import MachineState

router = APIRouter()

_HOSTNAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z"
)
_SANDBOX = re.compile(r"sandbox://[a-z0-9][a-z0-9-]{0,62}\Z")


def _reachable(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
        # `::ffff:10.0.0.1` is 10.0.0.1 under another name, and must not join a second time.
        return str((parsed.version == 6 and parsed.ipv4_mapped) or parsed)
    except ValueError:
        if _HOSTNAME.match(address) and not address.rpartition(".")[2].isdigit():
            return address.lower()
    raise ValueError("must be an IP address or a host name")


class Bmc(Input):
    """The machine's management controller; a sandbox needs neither user nor secret."""

    address: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    user: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    secret: SecretRef | None = None


class JoinNode(TenantInput):
    """nodes.join."""

    siteId: SiteId  # noqa: N815
    name: Name | None = None
    address: Annotated[str, StringConstraints(min_length=1, max_length=253), AfterValidator(_reachable)]
    port: int = Field(default=22, ge=1, le=65_535)
    user: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,31}$")] = "root"
    keySecret: SecretRef  # noqa: N815
    machineType: TypeName  # noqa: N815
    bmc: Bmc | None = None
    labels: dict[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")],
        Annotated[str, StringConstraints(max_length=255)],
    ] = Field(default_factory=dict, max_length=64)


class GetNode(TenantInput):
    """nodes.get."""

    nodeId: NodeId  # noqa: N815


class ListNodes(ListInput):
    """nodes.list."""

    siteId: SiteId | None = None  # noqa: N815
    poolId: PoolId | None = None  # noqa: N815
    state: Annotated[str, StringConstraints(pattern=f"^({'|'.join(MachineState)})$")] | None = None


class AssignPool(TenantInput):
    """nodes.assignPool."""

    poolId: PoolId  # noqa: N815
    nodeIds: list[NodeId] = Field(min_length=1, max_length=10_000)  # noqa: N815


def machine_record(
    machine: Machine, booked: bool, machine_class: str | None, waiting: str | None = None
) -> dict[str, object]:
    """A machine as answered; secrets stay references."""
    return {
        "id": machine.id,
        "siteId": machine.site_id,
        "poolId": machine.pool_id,
        "class": machine_class,
        "ownership": machine.ownership,
        "machineType": machine.machine_type,
        "name": machine.name,
        "address": machine.address,
        "port": machine.port,
        "user": machine.ssh_user,
        "keySecret": machine.key_secret,
        "bmc": {"address": machine.bmc_address, **machine.bmc} if machine.bmc_address else None,
        "labels": machine.labels,
        "state": machine.state,
        "stateSince": moment(machine.state_since),
        "stateDeadline": moment(machine.state_deadline),
        "message": waiting or machine.message,
        "booked": booked,
        "cordons": machine.cordons,
        "quarantined": machine.quarantined,
        "mismatched": machine.mismatched,
        # What the machine said of itself at the last contact; empty before the first.
        "facts": {to_camel(name): value for name, value in machine.facts.items()},
        # Driver and GPUs as last read: driver, gpus, problem, readAt; empty where none are expected.
        "hardware": machine.hardware,
        "lastContact": moment(machine.last_contact_at),
        "version": machine.version,
        "createdAt": moment(machine.created_at),
    }


async def _records(session: AsyncSession, found: list[Machine]) -> list[dict[str, object]]:
    booked = await machines.booked_machines(session, [machine.id for machine in found])
    waiting = await waiting_of_machines(session, [machine.id for machine in found])
    pools = await pools_of(session, sorted({machine.pool_id for machine in found if machine.pool_id}))
    return [
        machine_record(
            machine,
            machine.id in booked,
            pools[machine.pool_id].machine_class if machine.pool_id else None,
            waiting.get(machine.id),
        )
        for machine in found
    ]


def _controller_problems(context: Context, bmc: Bmc) -> list[Detail]:
    if not bmc.address.startswith("sandbox://"):
        return [Detail("bmc.address", "no provider is served for this address; accepted: sandbox://NAME")]
    if context.settings.sandbox_dir is None:
        return [Detail("bmc.address", "sandbox machines are not served here: BRINGUP_SANDBOX_DIR is not set")]
    if not _SANDBOX.match(bmc.address):
        return [Detail("bmc.address", "must be sandbox:// and 1 to 63 lower-case letters, digits and dashes")]
    return []


async def join_node(
    context: Context, session: AsyncSession, caller: Caller, body: JoinNode
) -> dict[str, object]:
    """Adds a machine; it is verified by the operation that is answered before it is ready."""
    await find_site(session, caller.tenant_id, body.siteId)
    caller.authorize()
    problems = _controller_problems(context, body.bmc) if body.bmc else []
    if problems:
        raise invalid(*problems)
    secrets = body.bmc.model_dump(exclude={"address"}, exclude_none=True) if body.bmc else {}
    machine, operation_id = await machines.join_machine(
        session,
        tenant_id=caller.tenant_id,
        actor=caller.name,
        asked=machines.NewMachine(
            site_id=body.siteId,
            address=body.address,
            machine_type=body.machineType,
            key_secret=body.keySecret,
            name=body.name,
            port=body.port,
            user=body.user,
            bmc_address=body.bmc.address if body.bmc else None,
            bmc=secrets,
            labels=body.labels,
        ),
    )
    return {"node": machine_record(machine, False, None), "operationId": str(operation_id)}


async def get_node(
    context: Context, session: AsyncSession, caller: Caller, body: GetNode
) -> dict[str, object]:
    """One machine."""
    machine = await machines.find_machine(session, caller.tenant_id, body.nodeId)
    caller.authorize(of_pool(machine.pool_id))
    return {"node": (await _records(session, [machine]))[0]}


async def list_nodes(
    context: Context, session: AsyncSession, caller: Caller, body: ListNodes
) -> dict[str, object]:
    """The tenant's machines, all or those of a site, a pool, a state. Retired ones only by their state."""
    caller.authorize(ITEMS)
    page = await machines.list_machines(
        session,
        caller.tenant_id,
        body.page(),
        site_id=body.siteId,
        pool_id=body.poolId,
        state=body.state,
        only_pool=caller.pool_scope,
    )
    return page_body(page, await _records(session, page.rows))


async def assign_pool(
    context: Context, session: AsyncSession, caller: Caller, body: AssignPool
) -> dict[str, object]:
    """Puts unbooked machines of the pool's site and GPU model into it; all of them or none."""
    pool = await own_pool(session, caller.tenant_id, body.poolId)
    caller.authorize(of_pool(pool.id))
    moved = await machines.assign_pool(
        session, tenant_id=caller.tenant_id, actor=caller.name, pool=pool, machine_ids=body.nodeIds
    )
    return {"nodes": await _records(session, moved)}


add_method(router, "nodes", "join", Permission.NODES_MANAGE, JoinNode, join_node)
add_method(router, "nodes", "get", Permission.NODES_READ, GetNode, get_node)
add_method(router, "nodes", "list", Permission.NODES_READ, ListNodes, list_nodes)
add_method(router, "nodes", "assignPool", Permission.POOLS_MANAGE, AssignPool, assign_pool)
