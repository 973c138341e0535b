"""Roles, scopes and decisions. A permission is `compute:<group>:<verb>`, asked about one resource."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """Who a token speaks for; see ROLE_PERMISSIONS."""

    FLEET_ADMIN = "fleet-admin"
    OWNER = "owner"
    OPERATOR = "operator"
    AUTHOR = "author"
    VIEWER = "viewer"


class Permission(StrEnum):
    """Every permission that a served route asks for."""

    TENANTS_READ = "compute:tenants:read"
    TENANTS_MANAGE = "compute:tenants:manage"
    TOKENS_MANAGE = "compute:tokens:manage"
    SITES_READ = "compute:sites:read"
    SITES_CREATE = "compute:sites:create"
    MACHINE_TYPES_READ = "compute:machine-types:read"
    MACHINE_TYPES_MANAGE = "compute:machine-types:manage"
    POOLS_READ = "compute:pools:read"
    POOLS_CREATE = "compute:pools:create"
    POOLS_SHARE = "compute:pools:share"
    POOLS_MANAGE = "compute:pools:manage"
    NODES_READ = "compute:nodes:read"
    NODES_OPERATE = "compute:nodes:operate"
    NODES_MANAGE = "compute:nodes:manage"
    RESERVATIONS_READ = "compute:reservations:read"
    RESERVATIONS_CREATE = "compute:reservations:create"
    CAPACITY_READ = "compute:capacity:read"
    PROFILES_READ = "compute:profiles:read"
    PROFILES_WRITE = "compute:profiles:write"
    CLUSTERS_READ = "compute:clusters:read"
    CLUSTERS_OPERATE = "compute:clusters:operate"
    CLUSTERS_MANAGE = "compute:clusters:manage"
    OPERATIONS_READ = "compute:operations:read"
    OPERATIONS_OPERATE = "compute:operations:operate"


_READS = frozenset(p for p in Permission if p.value.endswith(":read"))
_OPERATES = frozenset(p for p in Permission if p.value.endswith(":operate")) | {
    Permission.RESERVATIONS_CREATE
}
# A platform site belongs to the fleet, not to a tenant.
_ALL = frozenset(Permission)

ROLE_PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: _READS,
    Role.OPERATOR: _READS | _OPERATES,
    Role.AUTHOR: _READS | {Permission.PROFILES_WRITE},
    Role.OWNER: _ALL,
    Role.FLEET_ADMIN: _ALL,
}


def role_allows(role: Role, permission: Permission) -> bool:
    """Whether `role` carries `permission` on what it may see."""
    return permission in ROLE_PERMISSIONS[role]


@dataclass(frozen=True, slots=True)
class Scope:
    """What a token is narrowed to, beyond its tenant and role; None narrows nothing.

    `tenant_id`: that tenant and those below it. `pool_id`: that pool, its nodes and what is booked in it.
    """

    tenant_id: str | None = None
    pool_id: str | None = None

    @property
    def narrows(self) -> bool:
        """Whether there is less than all of the tenant's."""
        return self.tenant_id is not None or self.pool_id is not None


@dataclass(frozen=True, slots=True)
class Resource:
    """What a permission is asked about, as far as decisions look at it: something of the acting tenant's.

    `fleet`: it belongs to no tenant. `pool_id`: it is a pool, or belongs to one. `items`: it is a list whose
    items are each decided too, so a token that may read some of them may ask.
    """

    fleet: bool = False
    pool_id: str | None = None
    items: bool = False


TENANT = Resource()
FLEET = Resource(fleet=True)
ITEMS = Resource(items=True)


def of_pool(pool_id: str | None) -> Resource:
    """A pool, or a node of one; a node without a pool is the tenant's only."""
    return Resource(pool_id=pool_id)


def refused(role: Role, scope: Scope, permission: Permission, resource: Resource) -> str | None:
    """Why `permission` is not given on `resource`; None when it is."""
    if not role_allows(role, permission):
        return f"role {role} does not carry {permission}"
    if resource.fleet and (role is not Role.FLEET_ADMIN or scope.narrows):
        return f"role {role} does not carry {permission} on the fleet"
    if scope.pool_id is None or resource.pool_id == scope.pool_id:
        return None
    if resource.items and permission in _READS:
        return None
    return f"the token is for pool {scope.pool_id} only"


def may_grant(role: Role, scope: Scope, granted: Role) -> bool:
    """Whether a caller may issue a token of a role. Who serves the whole fleet is chosen by such only."""
    return granted is not Role.FLEET_ADMIN or (role is Role.FLEET_ADMIN and not scope.narrows)
