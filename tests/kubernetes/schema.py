"""Holds a manifest to the OpenAPI schema of its CustomResourceDefinition, or to the part that fields.yaml has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("fields.yaml")
TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "number": (int, float)}


def key_of(manifest: dict[str, Any]) -> str:
    return f"{manifest['apiVersion']} {manifest['kind']}"


def table() -> dict[str, dict[str, Any]]:
    """The schema of each kind, by "API VERSION KIND"."""
    return yaml.safe_load(TABLE.read_text())


def definitions(folder: Path) -> dict[str, dict[str, Any]]:
    """The same, of the CustomResourceDefinitions in a folder."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if not document:
                continue
            spec = document["spec"]
            for version in spec["versions"]:
                if version["served"]:
                    key = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
                    found[key] = version["schema"]["openAPIV3Schema"]
    return found


def errors(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """What the API server would object to, of what a schema says without expressions (CEL)."""
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, (str, int)) and not isinstance(value, bool) else [f"{path} is no text or number"]
    # fields.yaml leaves out what follows from the rest.
    kind = schema.get("type") or ("array" if "items" in schema else "object" if "properties" in schema else None)
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{path} is no {kind}: {value!r}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path} is {value!r}, none of {schema['enum']}")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{path} is {value!r}, which {schema['pattern']} does not match")
    for limit, wrong in (("minimum", lambda a, b: a < b), ("maximum", lambda a, b: a > b)):
        if limit in schema and isinstance(value, (int, float)) and wrong(value, schema[limit]):
            found.append(f"{path} is {value}, and {limit} is {schema[limit]}")
    if isinstance(value, list):
        for limit, wrong in (("minItems", lambda a, b: a < b), ("maxItems", lambda a, b: a > b)):
            if limit in schema and wrong(len(value), schema[limit]):
                found.append(f"{path} has {len(value)} items, and {limit} is {schema[limit]}")
        for index, item in enumerate(value):
            found += errors(item, schema.get("items", {}), f"{path}[{index}]")
    if isinstance(value, dict):
        found += fields(value, schema, path)
    return found


def fields(value: dict[str, Any], schema: dict[str, Any], path: str) -> list[str]:
    known = schema.get("properties", {})
    rest = schema.get("additionalProperties")
    found = [f"{path}.{name} is missing" for name in schema.get("required", []) if name not in value]
    for name, inner in value.items():
        if name in known:
            found += errors(inner, known[name], f"{path}.{name}")
        elif isinstance(rest, dict):
            found += errors(inner, rest, f"{path}.{name}")
        elif known and not schema.get("x-kubernetes-preserve-unknown-fields") and path:
            found.append(f"{path}.{name} is no field")
    return found
