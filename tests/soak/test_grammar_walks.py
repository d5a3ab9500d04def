"""Forty schemas and every dialect that has calls, under the default model's vocabulary: minutes of random walks."""

from __future__ import annotations

import pytest

from stream_parser.dialect import Dialect
from tests.testkit.grammar_kit import Kit
from tests.testkit.grammar_walks import CALLING, SCHEMAS, check_walk, default_model_kit, more_schemas

pytestmark = [pytest.mark.soak, pytest.mark.model]


@pytest.fixture(scope="module")
def kit() -> Kit:
    return default_model_kit()


@pytest.mark.parametrize("dialect", CALLING, ids=lambda dialect: dialect.name)
def test_walks_under_forty_schemas_make_valid_calls(dialect: Dialect, kit: Kit) -> None:
    schemas = SCHEMAS | more_schemas()
    assert len(schemas) == 40
    for seed, schema in enumerate(schemas.values()):
        for repeat in range(3):
            check_walk(dialect, schema, 100 * repeat + seed, kit)
