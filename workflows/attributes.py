"""Search attributes: what operators filter workflows by. Never encrypted, so never anything secret."""

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

TENANT = SearchAttributeKey.for_keyword("BringupTenant")
CLUSTER = SearchAttributeKey.for_keyword("BringupCluster")
NODE = SearchAttributeKey.for_keyword("BringupNode")
MACHINE = SearchAttributeKey.for_keyword("BringupMachine")
POOL = SearchAttributeKey.for_keyword("BringupPool")
ACTION = SearchAttributeKey.for_keyword("BringupAction")

ALL = (TENANT, CLUSTER, NODE, MACHINE, POOL, ACTION)


def attributes(
    *,
    tenant: str,
    action: str,
    cluster: str | None = None,
    node: str | None = None,
    machine: str | None = None,
) -> TypedSearchAttributes:
    """The attributes of one workflow; what is None is left out."""
    pairs: list[SearchAttributePair[str]] = [
        SearchAttributePair(key, value)
        for key, value in (
            (TENANT, tenant),
            (ACTION, action),
            (CLUSTER, cluster),
            (NODE, node),
            (MACHINE, machine),
        )
        if value is not None
    ]
    return TypedSearchAttributes(pairs)
