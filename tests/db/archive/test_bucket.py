"""Cold store in S3, against a server with its protocol."""

from __future__ import annotations

import pytest

from steersman.db.archive.compaction import compact
from steersman.db.archive.destination import open_destination
from steersman.db.archive.query import query
from steersman.errors import DataError, InputError

pytest.importorskip("moto.server")


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


async def test_an_object_that_is_there_is_never_replaced(bucket):
    for content in (b"first", b"second"):
        draft = bucket.scratch() / "draft"
        draft.write_bytes(content)
        if content == b"first":
            bucket.publish(draft, "x/part-1.parquet")
    with pytest.raises(FileExistsError):
        bucket.publish(draft, "x/part-1.parquet")
    assert bucket.fetch("x/part-1.parquet", bucket.scratch()).read_bytes() == b"first"


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


@pytest.mark.parametrize(
    ("url", "says"),
    [
        *((url, "invalid bucket") for url in ("s3://", "s3:///prefix", "s3://no name/x")),
        ("gs://bucket/prefix", "allowed are a directory and s3"),
    ],
)
def test_open_destination_with_a_bad_url_says_what_is_wrong(url, says):
    with pytest.raises(InputError, match=says):
        open_destination(url)
