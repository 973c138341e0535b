"""Profiles from files: the newest version becomes what the file says, as a new number once it was used."""

from typing import Any

from cli.client import Client, Object
from cli.errors import CliError
from cli.manifests.reading import Document, load_yaml, read_text

# What the API fills in where a step is silent. Should it ever fill in something else, then an apply makes a
# version that says the same as the one before; nothing worse.
_STEP_DEFAULTS: dict[str, Any] = {
    "phase": "create",
    "timeoutSeconds": 600,
    "disruption": "none",
    "onFailure": "fail",
}
_RETRY_DEFAULTS = {"attempts": 1, "backoffSeconds": 5}


class ProfileWriter:
    """Writes versions of this tenant's own profiles."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def write(self, document: Document) -> tuple[str, int]:
        """Returns what was done (created, updated, unchanged) and the number of the version."""
        fields = dict(document.fields)
        content, sent = _content(fields, document)
        profile = self._find(document.name)
        if profile is None:
            self._client.fleet("profiles/create", {"name": document.name, **fields, "content": sent})
            return "created", 1
        newest = max(profile["versions"], key=lambda version: int(version["number"]))
        number = int(newest["number"])
        asked = {"profileId": profile["id"], "number": number}
        stored = self._client.fleet("profiles/getVersion", asked)["version"]
        if filled(content) == stored["content"]:
            return "unchanged", number
        if stored.get("usedAt") is None:
            self._client.fleet("profiles/updateVersion", {**asked, "content": sent})
            return "updated", number
        body = {"profileId": profile["id"], "content": sent, "baseVersion": number}
        made = self._client.fleet("profiles/createVersion", body)["version"]
        return "updated", int(made["number"])

    def _find(self, name: str) -> Object | None:
        tenant = self._client.connection.tenant
        for profile in self._client.fleet_list("profiles/list"):
            if profile["tenantId"] == tenant and profile["name"] == name:
                return profile
        return None


def filled(content: object) -> object:
    """The content with defaults where a step says nothing, as the API stores it: without empty values."""
    if not isinstance(content, dict) or not isinstance(content.get("steps"), list):
        return content
    return _without_empty({**content, "steps": [_filled_step(step) for step in content["steps"]]})


def _without_empty(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_empty(inner) for key, inner in value.items() if inner is not None}
    return [_without_empty(inner) for inner in value] if isinstance(value, list) else value


def _filled_step(step: object) -> object:
    if not isinstance(step, dict):
        return step
    retry = step.get("retry")
    given = retry if isinstance(retry, dict) else {}
    return {**_STEP_DEFAULTS, **step, "retry": {**_RETRY_DEFAULTS, **given}}


def _content(fields: dict[str, Any], document: Document) -> tuple[object, object]:
    """The recipe as a value, and as it is sent: a `file` as its text, so that problems name lines."""
    content, file = fields.pop("content", None), fields.pop("file", None)
    if (content is None) == (file is None):
        raise CliError(f"{document.where}: give either content or file, the path of a recipe")
    if file is None:
        return content, content
    path = document.folder / str(file)
    text = read_text(path)
    values = load_yaml(text, str(path))
    if len(values) != 1:
        raise CliError(f"{path}: one recipe is expected, not {len(values)}")
    return values[0], text
