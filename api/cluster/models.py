"""Bodies of the cluster API. Keys that clients send beyond these are let pass, as the product lets them."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

# Every node keeps its own copy.
ATTRIBUTES_LIMIT = 65_536

RequestId = Annotated[str, Field(min_length=1, max_length=255)]
_Selector = Annotated[list[str], Field(max_length=10_000)]
# Names of nodes or machines that an operation has runs of.
RunName = Annotated[str, Field(min_length=1, max_length=63)]
RunNames = Annotated[list[RunName], Field(min_length=1, max_length=1_000)]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def checked_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes of an array or a node; raises ValueError when one that is acted on has the wrong type."""
    if len(json.dumps(attributes)) > ATTRIBUTES_LIMIT:
        raise ValueError(f"holds more than {ATTRIBUTES_LIMIT:,} characters")
    for name in ("KeepAlive", "Fixed", "StartAutomatically", "Interruptible"):
        if not isinstance(attributes.get(name, False), bool):
            raise ValueError(f"{name} must be true or false")
    if attributes.get("ShutdownPolicy", "Terminate") not in ("Terminate", "Deallocate"):
        raise ValueError("ShutdownPolicy must be Terminate or Deallocate")
    if not isinstance(attributes.get("Configuration", {}), dict):
        raise ValueError("Configuration must be an object")
    group = attributes.get("PlacementGroupId")
    if group is not None and not (isinstance(group, str) and len(group) <= 255):
        raise ValueError("PlacementGroupId must be text of at most 255 characters")
    if attributes.get("StartAutomatically") is False:
        raise ValueError(
            "StartAutomatically=false is not served by this release: nodes start when they are created"
        )
    return attributes


class Definition(_Body):
    """The bucket's definition; clients merge other attributes into it."""

    machineType: str | None = Field(default=None, max_length=64)  # noqa: N815


class CreateSet(_Body):
    """One set of nodes to create."""

    count: int = Field(ge=1, le=10_000)
    nodearray: str = Field(min_length=1, max_length=255)
    definition: Definition | None = None
    nameFormat: str | None = Field(default=None, min_length=1, max_length=128)  # noqa: N815
    nameOffset: int | None = Field(default=None, ge=0, le=1_000_000_000)  # noqa: N815
    nodeAttributes: dict[str, Any] | None = None  # noqa: N815
    placementGroupId: str | None = Field(default=None, max_length=255)  # noqa: N815

    @field_validator("nodeAttributes")
    @classmethod
    def _checked(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else checked_attributes(value)


class CreateNodes(_Body):
    """`POST /clusters/{cluster}/nodes/create`."""

    requestId: RequestId | None = None  # noqa: N815
    sets: list[CreateSet] = Field(min_length=1, max_length=1_000)


class ManageNodes(_Body):
    """The body of every verb on nodes: selectors, of which the union is meant."""

    requestId: RequestId | None = None  # noqa: N815
    ids: _Selector | None = None
    names: _Selector | None = None
    hostnames: _Selector | None = None
    ip_addresses: _Selector | None = None
    filter: str | None = Field(default=None, max_length=8_192)


class CancelOperation(_Body):
    """`POST /operations/{id}/cancel`; no body, or one without names, means all of it.

    A key that is not known is refused, unlike elsewhere: a misspelt `names` would end everything.
    """

    model_config = ConfigDict(extra="forbid")

    names: RunNames | None = None
