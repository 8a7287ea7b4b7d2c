"""One running Stoker for all tests of this folder: its start is what takes the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.whole import Whole


@pytest.fixture(scope="package")
def whole(
    kafka_bootstrap: str,
    redis_url: str,
    encoder_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Whole]:
    """Job and executor; it ends with the last test of this folder."""
    made = Whole(kafka_bootstrap, redis_url, tmp_path_factory.mktemp("whole"), encoder_model)
    try:
        made.start()
        yield made
    finally:
        made.close()
