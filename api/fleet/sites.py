"""sites.create, get, list; machineTypes.create, get, list."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field, StringConstraints, model_validator
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.cluster.records import moment
from api.context import Context
from api.fleet.fields import GpuModel, ListInput, Name, SiteId, TenantInput, TypeName, page_body
from api.fleet.methods import add_method
from database import machine_types, sites
from database.tables import MachineType, Site
from domain.permissions import FLEET, TENANT, Permission

router = APIRouter()


class CreateSite(TenantInput):
    """sites.create."""

    name: Name
    region: Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^\S+$")]
    custom: bool = True


class GetSite(TenantInput):
    """sites.get."""

    siteId: SiteId  # noqa: N815


class CreateMachineType(TenantInput):
    """machineTypes.create; memory in GB."""

    name: TypeName
    vcpu: int = Field(ge=1, le=65_536)
    pcpu: int | None = Field(default=None, ge=1, le=65_536)
    memoryGb: float = Field(gt=0, le=1_048_576)  # noqa: N815
    gpuModel: GpuModel | None = None  # noqa: N815
    gpuCount: int = Field(default=0, ge=0, le=64)  # noqa: N815
    infiniband: bool = False
    pricePerHour: float | None = Field(default=None, ge=0, le=1_000_000)  # noqa: N815

    @model_validator(mode="after")
    def _model_with_gpus(self) -> "CreateMachineType":
        if (self.gpuModel is None) != (self.gpuCount == 0):
            raise ValueError("gpuModel and a gpuCount above 0 come together")
        return self


class GetMachineType(TenantInput):
    """machineTypes.get."""

    name: TypeName


def site_record(site: Site) -> dict[str, object]:
    """A site as answered."""
    return {
        "id": site.id,
        "tenantId": site.tenant_id,
        "name": site.name,
        "region": site.region,
        "custom": site.custom,
        "version": site.version,
        "createdAt": moment(site.created_at),
    }


def machine_type_record(kind: MachineType) -> dict[str, object]:
    """A machine type as answered."""
    return {
        "name": kind.name,
        "vcpu": kind.vcpu,
        "pcpu": kind.pcpu,
        "memoryGb": kind.memory_gb,
        "gpuModel": kind.gpu_model,
        "gpuCount": kind.gpu_count,
        "infiniband": kind.infiniband,
        "pricePerHour": kind.price_per_hour,
        "createdAt": moment(kind.created_at),
    }


async def create_site(
    context: Context, session: AsyncSession, caller: Caller, body: CreateSite
) -> dict[str, object]:
    """Makes a site. One of the platform's (custom: false) needs the permission on the fleet."""
    caller.authorize(TENANT if body.custom else FLEET)
    site = await sites.create_site(
        session,
        tenant_id=caller.tenant_id,
        actor=caller.name,
        name=body.name,
        region=body.region,
        custom=body.custom,
    )
    return {"site": site_record(site)}


async def get_site(
    context: Context, session: AsyncSession, caller: Caller, body: GetSite
) -> dict[str, object]:
    """One site."""
    site = await sites.find_site(session, caller.tenant_id, body.siteId)
    caller.authorize()
    return {"site": site_record(site)}


async def list_sites(
    context: Context, session: AsyncSession, caller: Caller, body: ListInput
) -> dict[str, object]:
    """The tenant's sites."""
    caller.authorize()
    page = await sites.list_sites(session, caller.tenant_id, body.page())
    return page_body(page, [site_record(site) for site in page.rows])


async def create_machine_type(
    context: Context, session: AsyncSession, caller: Caller, body: CreateMachineType
) -> dict[str, object]:
    """Declares what a kind of machine has."""
    caller.authorize()
    kind = await machine_types.create_machine_type(
        session,
        tenant_id=caller.tenant_id,
        actor=caller.name,
        name=body.name,
        vcpu=body.vcpu,
        pcpu=body.pcpu,
        memory_gb=body.memoryGb,
        gpu_model=body.gpuModel,
        gpu_count=body.gpuCount,
        infiniband=body.infiniband,
        price_per_hour=body.pricePerHour,
    )
    return {"machineType": machine_type_record(kind)}


async def get_machine_type(
    context: Context, session: AsyncSession, caller: Caller, body: GetMachineType
) -> dict[str, object]:
    """One machine type."""
    kind = await machine_types.find_machine_type(session, caller.tenant_id, body.name)
    caller.authorize()
    return {"machineType": machine_type_record(kind)}


async def list_machine_types(
    context: Context, session: AsyncSession, caller: Caller, body: ListInput
) -> dict[str, object]:
    """The tenant's machine types by name."""
    caller.authorize()
    page = await machine_types.list_machine_types(session, caller.tenant_id, body.page())
    return page_body(page, [machine_type_record(kind) for kind in page.rows])


_P = Permission
add_method(router, "sites", "create", _P.SITES_CREATE, CreateSite, create_site)
add_method(router, "sites", "get", _P.SITES_READ, GetSite, get_site)
add_method(router, "sites", "list", _P.SITES_READ, ListInput, list_sites)
add_method(router, "machineTypes", "create", _P.MACHINE_TYPES_MANAGE, CreateMachineType, create_machine_type)
add_method(router, "machineTypes", "get", _P.MACHINE_TYPES_READ, GetMachineType, get_machine_type)
add_method(router, "machineTypes", "list", _P.MACHINE_TYPES_READ, ListInput, list_machine_types)
