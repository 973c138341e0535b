"""Profiles and their versions: drafts until first use, then frozen."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.builtin import TENANT as BUILTIN
from database.events import record_event
from database.pages import Page, PageRequest, page_of
from database.refusals import conflict, invalid_state, not_found
from database.tables import Profile, ProfileContentRow, ProfileVersion
from domain.ids import derived_id, new_id
from profiles.canonical import digest
from profiles.references import ProfileRef


@dataclass(frozen=True, slots=True)
class NewProfile:
    """A profile as asked for; `content` is canonical text."""

    name: str
    description: str
    visibility: str
    content: str
    idempotency_key: str | None = None


def _visible(tenant_id: str) -> ColumnElement[bool]:
    return or_(Profile.tenant_id == tenant_id, Profile.visibility == "public", Profile.tenant_id == BUILTIN)


async def find_profile(session: AsyncSession, tenant_id: str, profile_id: str) -> Profile:
    """A profile of the tenant's own, a public or a builtin one; Refusal NOT_FOUND otherwise."""
    profile = await session.scalar(select(Profile).where(Profile.id == profile_id, _visible(tenant_id)))
    if profile is None:
        raise not_found(f"there is no profile {profile_id}")
    return profile


async def own_profile(session: AsyncSession, tenant_id: str, profile_id: str) -> Profile:
    """A profile that the tenant may change: its own. Builtin and foreign public ones are read-only."""
    profile = await find_profile(session, tenant_id, profile_id)
    if profile.tenant_id == BUILTIN:
        raise invalid_state(f"profile {profile_id} ships with this release and is read-only")
    if profile.tenant_id != tenant_id:
        raise not_found(f"there is no profile {profile_id}")
    return profile


async def find_version(
    session: AsyncSession, tenant_id: str, reference: ProfileRef
) -> tuple[Profile, ProfileVersion] | None:
    """The version that a reference names, when the tenant sees it."""
    row = (
        await session.execute(
            select(Profile, ProfileVersion)
            .join(ProfileVersion, ProfileVersion.profile_id == Profile.id)
            .where(
                Profile.tenant_id == reference.tenant,
                Profile.name == reference.name,
                ProfileVersion.number == reference.number,
                _visible(tenant_id),
            )
        )
    ).one_or_none()
    return None if row is None else (row[0], row[1])


async def versions_of(session: AsyncSession, profile_ids: Sequence[str]) -> dict[str, list[ProfileVersion]]:
    """All versions of these profiles, ascending."""
    found: dict[str, list[ProfileVersion]] = {profile_id: [] for profile_id in profile_ids}
    for version in await session.scalars(
        select(ProfileVersion)
        .where(ProfileVersion.profile_id.in_(profile_ids))
        .order_by(ProfileVersion.profile_id, ProfileVersion.number)
    ):
        found[version.profile_id].append(version)
    return found


async def list_profiles(session: AsyncSession, tenant_id: str, request: PageRequest) -> Page:
    """Own, public and builtin profiles."""
    return await page_of(session, select(Profile).where(_visible(tenant_id)), [Profile.id], request)


async def keyed_profile(
    session: AsyncSession, tenant_id: str, caller: str, name: str, key: str | None
) -> Profile | None:
    """What an earlier create under the same key made; CONFLICT when it had another name."""
    if key is None:
        return None
    profile = await session.get(Profile, derived_id("prof", tenant_id, caller, key))
    if profile is not None and profile.name != name:
        raise conflict(f"this idempotency key made profile {profile.id}, with the name {profile.name}")
    return profile


async def create_profile(session: AsyncSession, *, tenant_id: str, actor: str, asked: NewProfile) -> Profile:
    """Makes a profile with version 1 as a draft; CONFLICT when the tenant has one of that name."""
    key = asked.idempotency_key
    profile_id = new_id("prof") if key is None else derived_id("prof", tenant_id, actor, key)
    made: Profile | None = await session.scalar(
        insert(Profile)
        .values(
            id=profile_id,
            tenant_id=tenant_id,
            name=asked.name,
            description=asked.description,
            visibility=asked.visibility,
            created_by=actor,
        )
        .on_conflict_do_nothing()
        .returning(Profile)
    )
    if made is None:
        stored = await keyed_profile(session, tenant_id, actor, asked.name, key)
        if stored is None:
            raise conflict(f"there is a profile {asked.name} already")
        return stored
    await _add_version(session, made, 1, asked.content, actor)
    return made


async def create_version(
    session: AsyncSession, *, profile: Profile, actor: str, content: str, base_version: int | None
) -> ProfileVersion:
    """Adds the next number; CONFLICT when there is one newer than `base_version`."""
    await session.refresh(profile, with_for_update={"key_share": True})
    newest = (
        await session.scalar(
            select(func.max(ProfileVersion.number)).where(ProfileVersion.profile_id == profile.id)
        )
        or 0
    )
    if base_version is not None and base_version != newest:
        raise conflict(f"the newest version is {newest}, not {base_version}")
    return await _add_version(session, profile, newest + 1, content, actor)


async def update_version(
    session: AsyncSession, *, profile: Profile, actor: str, number: int, content: str
) -> ProfileVersion:
    """Replaces the content of a version that no workflow has used; INVALID_STATE once one has.

    Conditional on `used_at`, under the row's lock: against a first use at the same moment it either comes
    first, and the workflow sees the new content, or is refused.
    """
    changed: ProfileVersion | None = await session.scalar(
        update(ProfileVersion)
        .where(
            ProfileVersion.profile_id == profile.id,
            ProfileVersion.number == number,
            ProfileVersion.used_at.is_(None),
        )
        .values(content=content, digest=digest(content))
        .returning(ProfileVersion)
    )
    if changed is None:
        known = await session.get(ProfileVersion, (profile.id, number))
        if known is None:
            raise not_found(f"profile {profile.name} has no version {number}")
        raise invalid_state(
            f"version {number} of {profile.name} was first used at {known.used_at:%Y-%m-%d %H:%M:%S} UTC "
            "and can no longer be changed; create the next version"
        )
    _record(session, profile, number, actor, "profile.version-updated", changed.digest)
    return changed


async def freeze_version(session: AsyncSession, tenant_id: str, reference: ProfileRef) -> str:
    """Marks a version as used, keeps its content for ever, and returns its digest.

    The row is locked before its content is read, so that an edit at the same moment comes before or is
    refused. A version that was used before cannot change and needs no lock.
    """
    found = await find_version(session, tenant_id, reference)
    if found is None:
        raise not_found(f"there is no profile version {reference}")
    version = found[1]
    if version.used_at is not None:
        return version.digest
    await session.refresh(version, with_for_update={"key_share": True})
    await session.execute(
        insert(ProfileContentRow)
        .values(digest=version.digest, content=version.content)
        .on_conflict_do_nothing()
    )
    if version.used_at is None:
        await session.execute(
            update(ProfileVersion)
            .where(ProfileVersion.profile_id == version.profile_id, ProfileVersion.number == version.number)
            .values(used_at=func.now())
        )
    return version.digest


async def _add_version(
    session: AsyncSession, profile: Profile, number: int, content: str, actor: str
) -> ProfileVersion:
    version = ProfileVersion(
        profile_id=profile.id, number=number, content=content, digest=digest(content), created_by=actor
    )
    session.add(version)
    _record(session, profile, number, actor, "profile.version-created", version.digest)
    await session.flush()
    await session.refresh(version)
    return version


def _record(
    session: AsyncSession, profile: Profile, number: int, actor: str, type: str, content_digest: str
) -> None:
    record_event(
        session,
        tenant_id=profile.tenant_id,
        type=type,
        subject=f"profile/{profile.id}",
        actor=actor,
        number=number,
        digest=content_digest,
    )
