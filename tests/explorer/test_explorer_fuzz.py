"""Requests that a machine makes up from the schema: every answer is one that the schema names."""

import base64

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from torchcaps.explorer import create_app  # noqa: E402

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
MODELS = "/api/models"
OPERATIONS = [
    (MODELS, "GET"),
    (f"{MODELS}/{{model}}/samples", "GET"),
    *((f"{MODELS}/{{model}}/{what}", "POST") for what in ("look", "decode", "routing", "upload")),
]
BOTH = pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
OF_MODELS = pytest.mark.parametrize(("path", "method"), OPERATIONS[1:])
QUICK = settings(max_examples=12, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def schema():
    return schemathesis.openapi.from_asgi("/openapi.json", create_app())


def test_every_operation_is_tried(schema):
    found = {(one.ok().path, one.ok().method.upper()) for one in schema.get_all_operations()}
    assert found == set(OPERATIONS)


@OF_MODELS
@BOTH
def test_made_up_requests_get_answers_of_the_schema(schema, path, method, mode):
    @QUICK
    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    def ask(case):
        case.call_and_validate(checks=CHECKS)

    ask()


@OF_MODELS
@BOTH
def test_so_do_those_to_models_that_exist(schema, path, method, mode):
    @QUICK
    @given(case=schema[path][method].as_strategy(generation_mode=mode), model=st.sampled_from(["mnist", "multi-mnist"]))
    def ask(case, model):
        case.path_parameters = {"model": model}
        case.call_and_validate(checks=CHECKS)

    ask()


def test_the_list_of_models_is_as_the_schema_says(schema):
    schema[MODELS]["GET"].Case().call_and_validate(checks=CHECKS)


@QUICK
@given(pixels=st.binary(min_size=784, max_size=784), what=st.sampled_from(["look", "routing"]))
def test_any_picture_is_looked_at(schema, pixels, what):
    case = schema[f"{MODELS}/{{model}}/{what}"]["POST"].Case(
        path_parameters={"model": "mnist"},
        body={"pixels": base64.b64encode(pixels).decode()},
        media_type="application/json",
    )
    response = case.call()
    assert response.status_code == 200
    case.validate_response(response, checks=CHECKS)


@QUICK
@given(label=st.integers(0, 9), pose=st.lists(st.floats(-10, 10), min_size=16, max_size=16))
def test_any_pose_is_drawn(schema, label, pose):
    case = schema[f"{MODELS}/{{model}}/decode"]["POST"].Case(
        path_parameters={"model": "mnist"}, body={"label": label, "pose": pose}, media_type="application/json"
    )
    response = case.call()
    assert response.status_code == 200
    case.validate_response(response, checks=CHECKS)
