"""profiles.create, get, list, getVersion, createVersion, updateVersion."""

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import StringConstraints
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.cluster.records import moment
from api.context import Context
from api.fleet.fields import (
    IdempotencyKey,
    ListInput,
    Name,
    ProfileId,
    TenantInput,
    VersionNumber,
    page_body,
)
from api.fleet.methods import add_method
from database import profiles as stored
from database.refusals import Detail, invalid, not_found
from database.tables import Profile, ProfileVersion
from domain.permissions import Permission
from profiles.canonical import canonical
from profiles.checking import check, parse
from profiles.documents import load
from profiles.problems import Problem, ProfileError

router = APIRouter()

# An object, or the text of a YAML or JSON document, whose lines then appear in the problems.
Content = dict[str, Any] | Annotated[str, StringConstraints(max_length=1_048_576)]


class CreateProfile(TenantInput):
    """profiles.create."""

    name: Name
    description: Annotated[str, StringConstraints(max_length=10_000)] = ""
    visibility: Literal["private", "public"] = "private"
    content: Content
    idempotencyKey: IdempotencyKey | None = None  # noqa: N815


class GetProfile(TenantInput):
    """profiles.get."""

    profileId: ProfileId  # noqa: N815


class GetVersion(TenantInput):
    """profiles.getVersion."""

    profileId: ProfileId  # noqa: N815
    number: VersionNumber


class CreateVersion(TenantInput):
    """profiles.createVersion."""

    profileId: ProfileId  # noqa: N815
    content: Content
    baseVersion: VersionNumber | None = None  # noqa: N815


class UpdateVersion(TenantInput):
    """profiles.updateVersion."""

    profileId: ProfileId  # noqa: N815
    number: VersionNumber
    content: Content


def _detail(problem: Problem) -> Detail:
    path = f"content.{problem.path}" if problem.path else "content"
    return Detail(path, f"line {problem.line}: {problem.message}" if problem.line else problem.message)


def canonical_text(content: dict[str, Any] | str) -> str:
    """Canonical text of checked content; Refusal INVALID_INPUT with every problem at once."""
    try:
        raw = load(content) if isinstance(content, str) else content
        problems = check(raw)
        if problems:
            raise invalid(*map(_detail, problems))
        return canonical(parse(raw))
    except ProfileError as error:
        raise invalid(*map(_detail, error.problems)) from None


def version_record(version: ProfileVersion, *, content: bool = False) -> dict[str, object]:
    """A version as answered; a used one never changes again."""
    record: dict[str, object] = {
        "number": version.number,
        "digest": version.digest,
        "createdBy": version.created_by,
        "createdAt": moment(version.created_at),
        "usedAt": moment(version.used_at),
        "deprecated": version.deprecated_at is not None,
    }
    if content:
        record["content"] = json.loads(version.content)
    return record


def profile_record(profile: Profile, versions: list[ProfileVersion]) -> dict[str, object]:
    """A profile as answered, with the heads of its versions."""
    return {
        "id": profile.id,
        "tenantId": profile.tenant_id,
        "name": profile.name,
        "description": profile.description,
        "visibility": profile.visibility,
        "archived": profile.archived_at is not None,
        "latestVersion": versions[-1].number if versions else None,
        "ref": f"{profile.tenant_id}/{profile.name}@{versions[-1].number}" if versions else None,
        "versions": [version_record(version) for version in versions],
        "createdBy": profile.created_by,
        "createdAt": moment(profile.created_at),
    }


async def _shown(session: AsyncSession, profile: Profile) -> dict[str, object]:
    versions = await stored.versions_of(session, [profile.id])
    return {"profile": profile_record(profile, versions[profile.id])}


async def create_profile(
    context: Context, session: AsyncSession, caller: Caller, body: CreateProfile
) -> dict[str, object]:
    """Makes a profile whose version 1 is a draft until its first use."""
    known = await stored.keyed_profile(session, caller.tenant_id, caller.name, body.name, body.idempotencyKey)
    if known is not None:
        caller.answered_before()
        return await _shown(session, known)
    caller.authorize()
    profile = await stored.create_profile(
        session,
        tenant_id=caller.tenant_id,
        actor=caller.name,
        asked=stored.NewProfile(
            body.name, body.description, body.visibility, canonical_text(body.content), body.idempotencyKey
        ),
    )
    return await _shown(session, profile)


async def get_profile(
    context: Context, session: AsyncSession, caller: Caller, body: GetProfile
) -> dict[str, object]:
    """One profile: own, public or builtin."""
    profile = await stored.find_profile(session, caller.tenant_id, body.profileId)
    caller.authorize()
    return await _shown(session, profile)


async def list_profiles(
    context: Context, session: AsyncSession, caller: Caller, body: ListInput
) -> dict[str, object]:
    """Own, public and builtin profiles."""
    caller.authorize()
    page = await stored.list_profiles(session, caller.tenant_id, body.page())
    versions = await stored.versions_of(session, [profile.id for profile in page.rows])
    return page_body(page, [profile_record(profile, versions[profile.id]) for profile in page.rows])


async def get_version(
    context: Context, session: AsyncSession, caller: Caller, body: GetVersion
) -> dict[str, object]:
    """One version with its content."""
    profile = await stored.find_profile(session, caller.tenant_id, body.profileId)
    version = await session.get(ProfileVersion, (profile.id, body.number))
    if version is None:
        raise not_found(f"profile {profile.name} has no version {body.number}")
    caller.authorize()
    return {"version": {"profileId": profile.id, **version_record(version, content=True)}}


async def create_version(
    context: Context, session: AsyncSession, caller: Caller, body: CreateVersion
) -> dict[str, object]:
    """Adds the next version as a draft."""
    profile = await stored.own_profile(session, caller.tenant_id, body.profileId)
    caller.authorize()
    version = await stored.create_version(
        session,
        profile=profile,
        actor=caller.name,
        content=canonical_text(body.content),
        base_version=body.baseVersion,
    )
    return {"version": {"profileId": profile.id, **version_record(version, content=True)}}


async def update_version(
    context: Context, session: AsyncSession, caller: Caller, body: UpdateVersion
) -> dict[str, object]:
    """Replaces the content of a version that nothing has used."""
    profile = await stored.own_profile(session, caller.tenant_id, body.profileId)
    caller.authorize()
    version = await stored.update_version(
        session,
        profile=profile,
        actor=caller.name,
        number=body.number,
        content=canonical_text(body.content),
    )
    return {"version": {"profileId": profile.id, **version_record(version, content=True)}}


_P = Permission
add_method(router, "profiles", "create", _P.PROFILES_WRITE, CreateProfile, create_profile)
add_method(router, "profiles", "get", _P.PROFILES_READ, GetProfile, get_profile)
add_method(router, "profiles", "list", _P.PROFILES_READ, ListInput, list_profiles)
add_method(router, "profiles", "getVersion", _P.PROFILES_READ, GetVersion, get_version)
add_method(router, "profiles", "createVersion", _P.PROFILES_WRITE, CreateVersion, create_version)
add_method(router, "profiles", "updateVersion", _P.PROFILES_WRITE, UpdateVersion, update_version)
