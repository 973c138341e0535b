"""Sites: where machines stand."""

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.pages import Page, PageRequest, page_of
from database.refusals import conflict, not_found
from database.tables import Site
from domain.ids import new_id


async def find_site(session: AsyncSession, tenant_id: str, site_id: str) -> Site:
    """A site that the tenant owns; Refusal NOT_FOUND otherwise."""
    site = await session.scalar(select(Site).where(Site.id == site_id, Site.tenant_id == tenant_id))
    if site is None:
        raise not_found(f"there is no site {site_id}")
    return site


async def list_sites(session: AsyncSession, tenant_id: str, request: PageRequest) -> Page:
    """The tenant's sites."""
    return await page_of(session, select(Site).where(Site.tenant_id == tenant_id), [Site.id], request)


async def create_site(
    session: AsyncSession, *, tenant_id: str, actor: str, name: str, region: str, custom: bool
) -> Site:
    """Makes a site; CONFLICT when the tenant has one of that name."""
    made: Site | None = await session.scalar(
        insert(Site)
        .values(id=new_id("site"), tenant_id=tenant_id, name=name, region=region, custom=custom)
        .on_conflict_do_nothing()
        .returning(Site)
    )
    if made is None:
        raise conflict(f"there is a site {name} already")
    record_event(
        session,
        tenant_id=tenant_id,
        type="site.created",
        subject=f"site/{made.id}",
        actor=actor,
        name=name,
        region=region,
    )
    return made
