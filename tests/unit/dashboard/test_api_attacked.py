"""N10: schemathesis makes requests from the OpenAPI document as it is served, right ones and wrong ones, and holds every answer against it."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.property.examples import examples
from tests.unit.dashboard.live import Live
from trimtab.dashboard.answers import Simulated
from trimtab.dashboard.api import ENDPOINTS, PREFIX, Endpoint
from trimtab.dashboard.wishes import Nothing

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
# Who may ask is test_security's question; here everybody is signed in.
GENERATION = GenerationConfig(with_security_parameters=False)


Request = Case[Any]
PLAYS = [one for one in ENDPOINTS if one.answer is Simulated]
"""A right wish of these takes a process and its time: test_pages has one."""


class Attacked:
    """The dashboard, and the operations of the document that it serves."""

    def __init__(self) -> None:
        self.live = Live()
        config = SchemathesisConfig(projects=ProjectsConfig(default=ProjectConfig(generation=GENERATION)))
        document = self.live.ask("GET", "/openapi.json").json()
        self._schema = schemathesis.openapi.from_dict(document, config=config)

    def requests(self, one: Endpoint, mode: GenerationMode) -> st.SearchStrategy[Request]:
        return self._schema[PREFIX + one.path][one.method].as_strategy(mode)

    def check(self, case: Request) -> None:
        wish = case.as_transport_kwargs(base_url=str(self.live.browser.base_url))
        answer = self.live.ask(
            wish["method"],
            wish["url"],
            params=wish.get("params"),
            headers=wish["headers"],
            json=wish.get("json"),
            content=wish.get("data"),
        )
        case.validate_response(answer, checks=CHECKS)


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    one = Attacked()
    yield one
    one.live.close()


def name(one: Endpoint) -> str:
    return f"{one.method} {one.path}"


def attack(attacked: Attacked, requests: st.SearchStrategy[Request]) -> None:
    @settings(
        max_examples=examples(25),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=requests)
    def each(case: Request) -> None:
        attacked.check(case)

    each()


@pytest.mark.parametrize("one", [one for one in ENDPOINTS if one not in PLAYS], ids=name)
def test_right_requests_are_answered_as_documented(attacked: Attacked, one: Endpoint) -> None:
    attack(attacked, attacked.requests(one, GenerationMode.POSITIVE))


@pytest.mark.parametrize("one", [one for one in ENDPOINTS if one.wish is not Nothing], ids=name)
def test_wrong_requests_are_refused_as_documented(attacked: Attacked, one: Endpoint) -> None:
    attack(attacked, attacked.requests(one, GenerationMode.NEGATIVE))
