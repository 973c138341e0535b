"""All tables. Import them from here, so that the metadata is always whole."""

from database.tables.base import Base
from database.tables.capacity import Atom, Booking, Claim, Offer, QuotaRow, Reservation
from database.tables.clusters import Cluster, Node, NodeArray
from database.tables.events import PROVE, Event, Outbox
from database.tables.machines import Machine, MachineType, Pool, Site
from database.tables.operations import LogChunk, Operation, PlanRow, Run, StepRun
from database.tables.profiles import Profile, ProfileContentRow, ProfileVersion
from database.tables.tenancy import Authorization, Tenant, Token

__all__ = [
    "PROVE",
    "Atom",
    "Authorization",
    "Base",
    "Booking",
    "Claim",
    "Cluster",
    "Event",
    "LogChunk",
    "Machine",
    "MachineType",
    "Node",
    "NodeArray",
    "Offer",
    "Operation",
    "Outbox",
    "PlanRow",
    "Pool",
    "Profile",
    "ProfileContentRow",
    "ProfileVersion",
    "QuotaRow",
    "Reservation",
    "Run",
    "Site",
    "StepRun",
    "Tenant",
    "Token",
]
