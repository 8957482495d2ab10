"""N10: whatever is sent to the API, it answers as its OpenAPI document says, and never with a mistake of its own."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.dashboard.live import Live
from trimtab.dashboard.answers import Refusal
from trimtab.dashboard.api import ENDPOINTS, PREFIX, Endpoint
from trimtab.dashboard.openapi import openapi

NAMES = st.sampled_from(["orders", "billing", "%RETRY%billing", "%DLQ%billing", "TBW102", "nothing"])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    one = Live()
    yield one
    one.close()


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found: dict[str, Any] = openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return found
    return schema


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What the schema allows."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return st.one_of([values(one) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
        case "string":
            least, most = schema.get("minLength", 0), min(40, schema.get("maxLength", 40))
            texts = st.text(st.characters(codec="utf-8"), min_size=least, max_size=most)
            return texts | NAMES | st.sampled_from(["begin", "end", "-1h", "sticky", "join", "k"])
        case "object":
            known = schema.get("properties", {})
            required = {
                name: values(one) for name, one in known.items() if name in schema.get("required", ())
            }
            optional = {name: values(one) for name, one in known.items() if name not in required}
            return st.fixed_dictionaries(required, optional=optional)
    raise AssertionError(f"no values for {schema}")


def wanted(one: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = openapi()["components"]["schemas"][one.wish.__name__]
    return found


def check(one: Endpoint, answer: httpx.Response) -> None:
    documented = openapi()["paths"][PREFIX + one.path][one.method.lower()]["responses"]
    assert str(answer.status_code) in documented, (answer.status_code, answer.text)
    msgspec.json.decode(answer.content, type=one.answer if answer.status_code == 200 else Refusal)


@pytest.mark.parametrize("one", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_answers_are_as_documented(live: Live, one: Endpoint, data: st.DataObject) -> None:
    if (one.method, one.path) == ("POST", "/simulation"):
        wish = data.draw(JUNK)  # a wish that is fine takes a process: test_pages has one
        check(one, live.ask("POST", PREFIX + one.path, json=wish))
        return
    wish = data.draw(
        values(wanted(one))
        | st.dictionaries(st.sampled_from(sorted(wanted(one).get("properties", {})) or ["x"]), JUNK)
        | JUNK
    )
    if one.method == "POST":
        check(one, live.ask("POST", PREFIX + one.path, json=wish))
        return
    query = wish if isinstance(wish, dict) else {"name": wish}
    params = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in query.items()
    }
    check(one, live.ask("GET", PREFIX + one.path, params=params))
