"""Problems of an input in words: where, what is wrong, and what is accepted there."""

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from database.refusals import Detail

_MOST = 100


def path_text(location: Sequence[str | int]) -> str:
    """`nodeArrays[0].poolId` for a location such as ("nodeArrays", 0, "poolId")."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def details_of(error: ValidationError, model: type[BaseModel]) -> list[Detail]:
    """Every problem of a validation, at most 100."""
    schema = model.model_json_schema(by_alias=True)
    details = []
    for problem in error.errors(include_url=False, include_context=False)[:_MOST]:
        location = problem["loc"]
        place = _schema_at(schema, location, problem["input"])
        path = path_text(place.location) or "body"
        if problem["type"] == "extra_forbidden":
            details.append(Detail(path, _unknown_field(str(location[-1]), place.fields)))
            continue
        message = "is required" if problem["type"] == "missing" else _shortened(problem["msg"])
        accepted = describe(place.schema)
        detail = Detail(path, f"{message}; accepted: {accepted}" if accepted else message)
        if detail not in details:
            details.append(detail)
    return details


def _shortened(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].lower() + message[1:]


def _unknown_field(name: str, fields: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, fields, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"is not a known field; {hint}known: {', '.join(sorted(fields)) or 'none'}"


class _Place:
    """Where in the schema a problem is: the location without the names of union branches."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.fields: list[str] = []
        # What the keys of the mapping are that was come through last.
        self.key: dict[str, Any] = {}
        self.location: list[str | int] = []


def _schema_at(root: dict[str, Any], location: Sequence[str | int], found: object) -> _Place:
    place = _Place(root)
    for index, part in enumerate(location):
        choices = _branches(root, place.schema)
        holder = next((c for c in choices if part in c.get("properties", {})), None)
        if holder is not None:
            place.fields = list(holder["properties"])
            place.schema = holder["properties"][part]
        elif isinstance(part, int):
            place.schema = next((c["items"] for c in choices if "items" in c), {})
        elif part == "[key]":
            # The part before was the key itself, which has not the form of one.
            place.schema = place.key
            continue
        else:
            mapping = next((found for c in choices if (found := _mapping(c)) is not None), None)
            if mapping is not None:
                place.key, place.schema = mapping
            elif index == len(location) - 1:
                place.fields = [name for c in choices for name in c.get("properties", {})]
                if not place.fields:
                    continue  # the name of a union's branch, not of a place
            else:
                continue
        place.location.append(part)
    place.schema = _resolved(root, place.schema)
    return place


def _mapping(schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What keys and values of a mapping are; None for what is no mapping."""
    for pattern, values in schema.get("patternProperties", {}).items():
        return {"type": "string", "pattern": pattern}, values
    values = schema.get("additionalProperties")
    return (schema.get("propertyNames", {}), values) if isinstance(values, dict) else None


def _resolved(root: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target: dict[str, Any] = root.get("$defs", {}).get(schema["$ref"].rsplit("/", 1)[-1], {})
        return target
    return schema


def _branches(root: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    schema = _resolved(root, schema)
    return [_resolved(root, branch) for branch in schema.get("anyOf", [schema])]


def describe(schema: dict[str, Any]) -> str:
    """What a place accepts: `a whole number from 1 to 500`, `one of exclusive, mig`."""
    if "anyOf" in schema:
        texts = [describe(branch) for branch in schema["anyOf"] if branch.get("type") != "null"]
        return " or ".join(text for text in texts if text)
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _range(
            schema, "minimum", "maximum", "exclusiveMinimum"
        )
    if kind == "string":
        length = _range(schema, "minLength", "maxLength")
        pattern = f" matching {schema['pattern']}" if "pattern" in schema else ""
        return "text" + (f" of length{length}" if length else "") + pattern
    if kind == "array":
        return "a list" + _range(schema, "minItems", "maxItems", unit=" entries")
    return {"boolean": "true or false", "object": "an object"}.get(str(kind), "")


def _range(schema: dict[str, Any], low: str, high: str, above: str | None = None, *, unit: str = "") -> str:
    if above is not None and above in schema and high in schema:
        return f" above {schema[above]}, at most {schema[high]}"
    if low in schema and high in schema:
        return f" from {schema[low]} to {schema[high]}{unit}"
    if low in schema:
        return f" of at least {schema[low]}{unit}"
    if high in schema:
        return f" of at most {schema[high]}{unit}"
    return ""
