"""What every test of TLS needs: two authorities, of which the servers know one, and ears for secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Test modules are imported one by one without a package (--import-mode=importlib).
sys.path.insert(0, str(Path(__file__).parent))
from certificates import Authority


@pytest.fixture(scope="session")
def authority(started: Callable[[Callable[[], Any]], Any], tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signed the servers' certificates."""
    made: Authority = started(lambda: Authority(tmp_path_factory.mktemp("authority")))
    return made


@pytest.fixture(scope="session")
def stranger(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another one of the same name, which signed none of them."""
    assert authority.certificate.exists()
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture
def everything_told(caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """All that was logged so far, down to the clients' debug lines, and the text of faults with their causes."""
    caplog.set_level(logging.DEBUG)

    def told(*faults: BaseException) -> str:
        lines = [record.getMessage() for record in caplog.records] + [caplog.text]
        for fault in faults:
            link: BaseException | None = fault
            while link is not None:
                lines += [str(link), repr(link)]
                link = link.__cause__ or link.__context__
        return "\n".join(lines)

    return told
