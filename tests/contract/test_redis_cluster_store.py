"""The rules of a lease on a real Cluster of three masters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from clusters import Cluster
from singletonjob.stores import from_url
from singletonjob.testing.contract import LeaseStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from singletonjob.stores import LeaseStore


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


class TestRedisClusterStore(LeaseStoreContract):
    @pytest.fixture
    def make_store(self, cluster: Cluster) -> Callable[[], LeaseStore]:
        cluster.flush()
        return partial(from_url, cluster.url)
