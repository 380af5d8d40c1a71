"""The explorer of the shipped models, made once; nothing here listens on a port."""

import pytest
from fastapi.testclient import TestClient

from torchcaps.explorer import create_app


@pytest.fixture(scope="session")
def explorer():
    return create_app()


@pytest.fixture(scope="session")
def client(explorer):
    return TestClient(explorer, raise_server_exceptions=False)  # what breaks is an answer with 500, as in life
