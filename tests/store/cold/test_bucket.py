"""The cold store in S3, against a server that speaks its protocol."""

from __future__ import annotations

import http.client

import pytest

from steersman.errors import DataError, InputError
from steersman.store.cold import Bucket, compact, open_destination, query

ThreadedMotoServer = pytest.importorskip("moto.server").ThreadedMotoServer


@pytest.fixture(scope="module")
def endpoint():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    connection = http.client.HTTPConnection(host, port)
    connection.request("PUT", "/cold")
    connection.getresponse().read()
    connection.close()
    yield url
    server.stop()


@pytest.fixture
def bucket(endpoint, tmp_path):
    options = {
        "endpoint": endpoint,
        "access_key_id": "test",
        "secret_access_key": "test",
        "region": "us-east-1",
        "client_options": {"allow_http": True},
        "retry_config": {"max_retries": 0},
    }
    place = open_destination(f"s3://cold/{tmp_path.name}", **options)
    assert isinstance(place, Bucket)
    return place


async def test_days_are_written_replaced_and_read(past, bucket, days):
    for day in days:
        await past.add(day, 10)
    done = await compact(past.database, bucket, tenants=[past.tenant], until=days[1])
    assert sorted(bucket.paths("decision")) == [e.path for e in done.written[:2]]
    sql = "SELECT count(*) AS n, count(DISTINCT id) AS k FROM decision"
    counted = (await query(past.database, bucket, past.tenant, sql)).to_pylist()
    assert counted == [{"n": 30, "k": 30}]
    await past.add(days[0], 1)
    done = await compact(past.database, bucket, tenants=[past.tenant], until=days[1])
    assert [e.generation for e in done.written] == [2, 2, 2]
    assert done.removed == 3
    await past.forget(days[0])
    counted = (await query(past.database, bucket, past.tenant, sql)).to_pylist()
    assert counted == [{"n": 31, "k": 31}]
    assert (
        await compact(past.database, bucket, tenants=[past.tenant], until=days[1])
    ).written == ()


async def test_leftovers_are_removed(past, bucket, days):
    await past.add(days[0], 2)
    await compact(past.database, bucket, tenants=[past.tenant], until=days[0])
    left = bucket.scratch() / "left"
    left.write_bytes(b"half")
    bucket.publish(left, f"event/tenant={past.tenant}/day={days[0]}/part-7.parquet")
    done = await compact(past.database, bucket, tenants=[past.tenant], until=days[0])
    assert (done.written, done.removed) == ((), 1)


def test_a_bucket_that_is_not_there_is_told(endpoint, tmp_path):
    place = open_destination(
        "s3://nowhere/x",
        endpoint=endpoint,
        access_key_id="test",
        secret_access_key="test",  # noqa: S106
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    draft = tmp_path / "draft"
    draft.write_bytes(b"rows")
    with pytest.raises((DataError, FileNotFoundError), match="y"):
        place.publish(draft, "y")


def test_other_urls_are_refused():
    with pytest.raises(InputError, match="allowed are a directory and s3"):
        open_destination("gs://bucket/prefix")
