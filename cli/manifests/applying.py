"""Makes the API hold what documents say. A second apply of the same documents changes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cli.client import Client, Object
from cli.errors import CliError, RefusedError
from cli.manifests.profiles import ProfileWriter
from cli.manifests.reading import Document

# A pool has an id and no name; the name in the file becomes the key under which a create finds it again.
_POOL_KEY = "apply/{name}"
_POOL_ID = "pool_"


class Change(StrEnum):
    """What an apply did with one object."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Applied:
    """One object after it was applied; `reference` is how the API and other objects call it."""

    kind: str
    name: str
    change: Change
    reference: str
    detail: str = ""


class Applier:
    """Applies documents in their order; remembers the ids of what it has seen."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sites: dict[str, str] = {}
        self._pools: dict[str, str] = {}
        self._profiles = ProfileWriter(client)
        self._references: dict[str, str] = {}

    def apply(self, documents: Sequence[Document]) -> Iterator[Applied]:
        """Yields what became of each document. Raises CliError that names the document it failed at."""
        handlers = {
            "Site": self._site,
            "MachineType": self._machine_type,
            "Pool": self._pool,
            "Profile": self._profile,
            "Cluster": self._cluster,
        }
        for document in documents:
            try:
                yield handlers[document.kind](document)
            except RefusedError as refused:
                said = f"{document.where}: {refused}"
                raise RefusedError(refused.status, refused.code, said) from None

    def _site(self, document: Document) -> Applied:
        found = _named(self._client.fleet_list("sites/list"), document.name)
        if found is None:
            body = {"name": document.name, **document.fields}
            found = self._client.fleet("sites/create", body)["site"]
            change = Change.CREATED
        else:
            _must_equal(document, document.fields, found)
            change = Change.UNCHANGED
        self._sites[document.name] = str(found["id"])
        return Applied("Site", document.name, change, str(found["id"]))

    def _machine_type(self, document: Document) -> Applied:
        found = _named(self._client.fleet_list("machineTypes/list"), document.name)
        if found is None:
            self._client.fleet("machineTypes/create", {"name": document.name, **document.fields})
            return Applied("MachineType", document.name, Change.CREATED, document.name)
        _must_equal(document, document.fields, found)
        return Applied("MachineType", document.name, Change.UNCHANGED, document.name)

    def _pool(self, document: Document) -> Applied:
        fields = dict(document.fields)
        machines = fields.pop("machines", [])
        site = self._site_id(fields.pop("site", None), document)
        known = {pool["id"] for pool in self._client.pools()}
        key = _POOL_KEY.format(name=document.name)
        made = self._client.fleet("pools/create", {"siteId": site, "idempotencyKey": key, **fields})["pool"]
        pool = str(made["id"])
        self._pools[document.name] = pool
        change = Change.UNCHANGED if pool in known else Change.CREATED
        if change is Change.UNCHANGED:
            _must_equal(document, {k: v for k, v in fields.items() if k in made}, made)
        missing = self._unassigned(machines, site, pool, document)
        if not missing:
            nothing = change is Change.CREATED and machines == "all"
            detail = "no machines: none is without a pool" if nothing else ""
            return Applied("Pool", document.name, change, pool, detail)
        self._client.fleet("nodes/assignPool", {"poolId": pool, "nodeIds": missing})
        if change is Change.UNCHANGED:
            change = Change.UPDATED
        return Applied("Pool", document.name, change, pool, f"{len(missing)} machines assigned")

    def _unassigned(self, wanted: object, site: str, pool: str, document: Document) -> list[str]:
        """The ids of the wanted machines that are not in the pool yet.

        `all` means every machine of the site that no other pool has.
        """
        found = self._client.fleet_list("nodes/list", {"siteId": site})
        if wanted == "all":
            return [str(one["id"]) for one in found if not one.get("poolId")]
        if not isinstance(wanted, list):
            raise CliError(f"{document.where}: machines must be `all` or a list of names")
        by_name = {one["name"]: one for one in found}
        if unknown := [str(name) for name in wanted if name not in by_name]:
            raise CliError(f"{document.where}: the site has no machine {', '.join(unknown)}")
        return [str(by_name[name]["id"]) for name in wanted if by_name[name].get("poolId") != pool]

    def _profile(self, document: Document) -> Applied:
        change, number = self._profiles.write(document)
        reference = f"{self._client.connection.tenant}/{document.name}@{number}"
        self._references[document.name] = reference
        return Applied("Profile", document.name, Change(change), reference)

    def _cluster(self, document: Document) -> Applied:
        fields = dict(document.fields)
        arrays = fields.get("nodeArrays")
        if not isinstance(arrays, list) or not all(isinstance(array, dict) for array in arrays):
            raise CliError(f"{document.where}: nodeArrays must be a list of mappings")
        fields["nodeArrays"] = [self._array(array, document) for array in arrays]
        found = _named(self._client.fleet_list("clusters/list"), document.name)
        if found is None:
            self._client.fleet("clusters/create", {"name": document.name, **fields})
            return Applied("Cluster", document.name, Change.CREATED, document.name)
        _must_equal(document, fields, found)
        return Applied("Cluster", document.name, Change.UNCHANGED, document.name)

    def _array(self, array: Mapping[str, Any], document: Document) -> Object:
        made = dict(array)
        if "pool" in made:
            made["poolId"] = self._pool_id(made.pop("pool"), document)
        if isinstance(profile := made.get("profile"), str) and "/" not in profile:
            made["profile"] = self._reference(profile, document)
        return made

    def _site_id(self, name: object, document: Document) -> str:
        if not isinstance(name, str):
            raise CliError(f"{document.where}: site must be the name of a site")
        if name not in self._sites:
            found = _named(self._client.fleet_list("sites/list"), name)
            if found is None:
                raise CliError(f"{document.where}: there is no site {name}")
            self._sites[name] = str(found["id"])
        return self._sites[name]

    def _pool_id(self, name: object, document: Document) -> str:
        if isinstance(name, str) and name.startswith(_POOL_ID):
            return name
        if name not in self._pools:
            raise CliError(
                f"{document.where}: pool {name} is not among the applied documents; add its document, "
                f"or give its id ({_POOL_ID}...), which `bringup machines list` shows"
            )
        return self._pools[str(name)]

    def _reference(self, profile: str, document: Document) -> str:
        """`name` is the version that this apply wrote or found; `name@N` is that one of this tenant."""
        if "@" in profile:
            return f"{self._client.connection.tenant}/{profile}"
        if profile not in self._references:
            raise CliError(
                f"{document.where}: profile {profile} is not among the applied documents; "
                "give its version: NAME@NUMBER or TENANT/NAME@NUMBER"
            )
        return self._references[profile]


def _named(objects: Sequence[Object], name: str) -> Object | None:
    return next((one for one in objects if one["name"] == name), None)


def _must_equal(document: Document, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """CliError when the API holds something else under that name; fields not given are not compared."""
    different = list(differences(wanted, found))
    if different:
        raise CliError(
            f"{document.where}: is there already and differs, which this release cannot change: "
            + "; ".join(different)
        )


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Each given value that the API holds differently, by its path."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            yield from differences(value, found.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif wanted != found:
        yield f"{path} is {found!r:.60}, the file says {wanted!r:.60}"
