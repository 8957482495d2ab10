"""The OpenAPI document, made from the table of endpoints. PURE."""

from functools import lru_cache
from typing import Any

import msgspec

from trimtab import __version__
from trimtab.dashboard.answers import Refusal
from trimtab.dashboard.api import ENDPOINTS, PREFIX, Endpoint

_REF = "#/components/schemas/{name}"
_REFUSALS = {
    "400": "asked wrongly",
    "401": "not signed in",
    "403": "not allowed",
    "404": "does not exist",
    "413": "too large",
    "502": "a server refused",
    "503": "too much at once",
    "504": "a server does not answer",
}


@lru_cache(maxsize=1)
def openapi() -> dict[str, Any]:
    """The whole of it."""
    types = [Refusal, *dict.fromkeys(kind for one in ENDPOINTS for kind in (one.wish, one.answer))]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        paths.setdefault(PREFIX + one.path, {})[one.method.lower()] = _operation(one, by_type, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "trimtab dashboard",
            "version": __version__,
            "description": "Sign in with `Authorization: Bearer TOKEN`. Changes are for operators; each is a preview unless"
            " `preview` is false.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Endpoint, schemas: dict[type, Any], components: dict[str, Any]) -> dict[str, Any]:
    refusal = {"application/json": {"schema": schemas[Refusal]}}
    operation: dict[str, Any] = {
        "operationId": (one.method.lower() + one.path).replace("/", "_").replace("-", "_"),
        "summary": one.says,
        "responses": {
            "200": {
                "description": "so it is",
                "content": {"application/json": {"schema": schemas[one.answer]}},
            }
        }
        | {status: {"description": text, "content": refusal} for status, text in _REFUSALS.items()},
    }
    if one.method == "POST":
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[one.wish]}},
        }
        return operation
    wish = components[one.wish.__name__]
    operation["parameters"] = [
        {"name": name, "in": "query", "required": name in wish.get("required", ()), "schema": schema}
        for name, schema in wish.get("properties", {}).items()
    ]
    return operation
