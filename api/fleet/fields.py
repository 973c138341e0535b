"""Fields that several methods take, with their forms."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field, StringConstraints

from api.bodies import Input
from database.pages import Page, PageRequest
from domain.ids import BODY

TenantId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
TypeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
ClusterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
GpuModel = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,32}$")]
IdempotencyKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._~:/+=-]{1,128}$")]
PoolId = Annotated[str, StringConstraints(pattern=f"^pool_{BODY}$")]
SiteId = Annotated[str, StringConstraints(pattern=f"^site_{BODY}$")]
NodeId = Annotated[str, StringConstraints(pattern=f"^node_{BODY}$")]
ReservationId = Annotated[str, StringConstraints(pattern=f"^res_{BODY}$")]
TokenId = Annotated[str, StringConstraints(pattern=f"^tok_{BODY}$")]
ProfileId = Annotated[str, StringConstraints(pattern=f"^prof_{BODY}$")]
AccountId = Annotated[str, StringConstraints(pattern=f"^pacct_{BODY}$")]
OperationId = Annotated[
    str, StringConstraints(pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
]
# A file below the worker's folder of secrets; no part of the path is `.` or `..`.
SecretRef = Annotated[
    str, StringConstraints(pattern=r"^secret://file(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}){1,4}$")
]


def _moment(value: object) -> datetime:
    if isinstance(value, str):
        try:
            read = datetime.fromisoformat(value)
            if read.tzinfo is not None and "T" in value.upper():
                return read.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise ValueError("must be a time such as 2030-01-31T12:00:00Z, with its offset from UTC")


Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]
VersionNumber = Annotated[int, Field(ge=1, le=1_000_000)]


class TenantInput(Input):
    """Base of every method's input."""

    tenantId: TenantId  # noqa: N815


class ListInput(TenantInput):
    """Base of every list's input."""

    limit: int = Field(default=100, ge=1, le=500)
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=1_024)] | None = None

    def page(self) -> PageRequest:
        """What the query takes."""
        return PageRequest(self.limit, self.cursor)


def page_body(page: Page, items: list[dict[str, object]]) -> dict[str, object]:
    """The answer of a list."""
    return {"items": items, "nextCursor": page.next_cursor}
