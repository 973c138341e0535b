"""Stores the profiles that this release ships under the tenant `builtin`."""

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.tables import Profile, ProfileVersion, Tenant
from domain.ids import derived_id
from profiles.builtin import builtin_profiles
from profiles.canonical import canonical, digest

TENANT = "builtin"


async def store_builtin_profiles(session: AsyncSession) -> None:
    """Adds what is new. Raises ValueError when the release changes a version that it had shipped before."""
    await session.execute(insert(Tenant).values(id=TENANT).on_conflict_do_nothing())
    for profile in builtin_profiles():
        profile_id = derived_id("prof", TENANT, profile.name)
        await session.execute(
            insert(Profile)
            .values(
                id=profile_id,
                tenant_id=TENANT,
                name=profile.name,
                description=profile.description,
                visibility="public",
                created_by=TENANT,
            )
            .on_conflict_do_update(index_elements=[Profile.id], set_={"description": profile.description})
        )
        stored = {
            row.number: row.digest
            for row in await session.execute(
                select(ProfileVersion.number, ProfileVersion.digest).where(
                    ProfileVersion.profile_id == profile_id
                )
            )
        }
        for number, content in sorted(profile.versions.items()):
            text = canonical(content)
            known = stored.get(number)
            if known is None:
                session.add(
                    ProfileVersion(
                        profile_id=profile_id,
                        number=number,
                        content=text,
                        digest=digest(text),
                        created_by=TENANT,
                    )
                )
            elif known != digest(text):
                raise ValueError(
                    f"builtin/{profile.name}@{number} differs from the version that an earlier release "
                    "shipped under that number; ship it as the next number"
                )
