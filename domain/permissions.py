"""Roles and what each may do. A permission is `compute:<group>:<verb>`, asked about one resource."""

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

    SITES_READ = "compute:sites:read"
    SITES_CREATE = "compute:sites:create"
    MACHINE_TYPES_READ = "compute:machine-types:read"
    MACHINE_TYPES_MANAGE = "compute:machine-types:manage"
    POOLS_READ = "compute:pools:read"
    POOLS_CREATE = "compute:pools:create"
    POOLS_MANAGE = "compute:pools:manage"
    NODES_READ = "compute:nodes:read"
    NODES_OPERATE = "compute:nodes:operate"
    NODES_MANAGE = "compute:nodes:manage"
    PROFILES_READ = "compute:profiles:read"
    PROFILES_WRITE = "compute:profiles:write"
    CLUSTERS_READ = "compute:clusters:read"
    CLUSTERS_OPERATE = "compute:clusters:operate"
    CLUSTERS_MANAGE = "compute:clusters:manage"
    OPERATIONS_READ = "compute:operations:read"
    OPERATIONS_OPERATE = "compute:operations:operate"


_READS = frozenset(p for p in Permission if p.value.endswith(":read"))
_OPERATES = frozenset(p for p in Permission if p.value.endswith(":operate"))
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
