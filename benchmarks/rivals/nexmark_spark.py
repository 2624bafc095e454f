"""Spark Structured Streaming with its connector for Kafka: the queries of Nexmark as DataFrames.

    python -m benchmarks.rivals.nexmark_spark HEAP JAR... '<json of a Job>'

Runs in an environment of its own until its standard input ends. State is in RocksDB. A query with one aggregate writes
its updates. The others append: their windows end with the watermark, which an event in a topic of its own moves after
the last event. Not here: queries that need retractions, distinct counts or ranks.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.rivals.nexmark_job import Job, report

_LATE: Final = "10 seconds"
_WINDOW: Final = "10 seconds"
_LOOK_SECONDS: Final = 0.1
_BATCHES: Final = 20  # in which the events are read
_BID_TYPES: Final = (
    "auction bigint, bidder bigint, price bigint, channel string, url string, date_time bigint, extra string"
)
_EVENT: Final = (
    "event_type int, person struct<id: bigint, name: string, city: string, state: string>, auction struct<id: bigint, "
    "item_name: string, date_time: bigint, expires: bigint, seller: bigint, category: bigint>, "
    f"bid struct<{_BID_TYPES.replace(' bigint', ': bigint').replace(' string', ': string')}>"
)
_BID: Final = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")


class Events:
    """The events of a topic: bids, auctions and people, each with its time `ts`."""

    def __init__(self, events: DataFrame, side: DataFrame) -> None:
        self._events = events.withWatermark("ts", _LATE)
        self.side = side

    @property
    def bids(self) -> DataFrame:
        """The bids."""
        return self._of_type(2, "bid")

    @property
    def auctions(self) -> DataFrame:
        """The auctions."""
        return self._of_type(1, "auction")

    @property
    def people(self) -> DataFrame:
        """The people."""
        return self._of_type(0, "person")

    def _of_type(self, number: int, part: str) -> DataFrame:
        return self._events.where(f.col("event_type") == number).select(f"{part}.*", "ts")


def _row(*columns: str | Column) -> Column:
    return f.to_json(f.struct(*columns)).alias("value")


def _appended(rows: DataFrame, *columns: str | Column) -> DataFrame:
    return rows.select(f.lit(None).cast("string").alias("key"), _row(*columns))


def _ms(time: str) -> Column:
    return f.unix_millis(time).cast("string")


def _in_euros() -> Column:
    return (f.col("price").cast("double") * f.lit(0.908)).alias("price")


def _q0(events: Events) -> DataFrame:
    return _appended(events.bids, *_BID)


def _q1(events: Events) -> DataFrame:
    return _appended(events.bids.withColumn("price", _in_euros()), *_BID)


def _q2(events: Events) -> DataFrame:
    return _appended(events.bids.where(f.col("auction") % 123 == 0), "auction", "price")


def _q3(events: Events) -> DataFrame:
    auctions = events.auctions.where(f.col("category") == 10).select(f.col("id").alias("auction"), "seller")
    people = events.people.where(f.col("state").isin("OR", "ID", "CA"))
    found = auctions.join(people, f.col("seller") == f.col("id"))
    return found.select(
        f.col("auction").cast("string").alias("key"), _row("name", "city", "state", f.col("auction").alias("id"))
    )


def _q5(events: Events) -> DataFrame:
    windows = f.window("ts", _WINDOW, "2 seconds")
    counts = events.bids.groupBy(windows, f.col("auction").cast("string").alias("auction")).count()
    found = counts.groupBy("window").agg(
        f.max("count").alias("bids"), f.collect_list(f.struct("count", "auction")).alias("counts")
    )
    best = f.filter("counts", lambda each: each["count"] == f.col("bids"))["auction"]
    return found.select(_ms("window.start").alias("key"), _row("bids", f.array_sort(best).alias("auctions")))


def _q7(events: Events) -> DataFrame:
    row = f.array("auction", "bidder", "date_time")
    by_price = events.bids.groupBy(f.window("ts", _WINDOW), "price").agg(f.collect_list(row).alias("bids"))
    best = by_price.groupBy("window").agg(f.max(f.struct("price", "bids")).alias("best"))
    return best.select(
        f.concat(f.lit("all@"), _ms("window.start")).alias("key"),
        _row("best.price", f.array_sort("best.bids").alias("bids")),
    )


def _q8(events: Events) -> DataFrame:
    people = events.people.select("id", "name", f.window("ts", _WINDOW).alias("window"))
    sellers = events.auctions.select("seller", f.window("ts", _WINDOW).alias("of_seller"))
    found = people.groupBy("id", "name", "window").count().drop("count")
    selling = sellers.groupBy("seller", "of_seller").count().drop("count")
    new = found.join(selling, (f.col("id") == f.col("seller")) & (f.col("window") == f.col("of_seller")))
    return new.select(f.concat("id", f.lit("@"), _ms("window.start")).alias("key"), _row("id", "name"))


def _sold(events: Events) -> DataFrame:
    """Return the bids with their auctions, which may come up to a window earlier or later."""
    auctions = events.auctions.select(
        "id", "item_name", "category", "expires", f.col("date_time").alias("opens"), f.col("ts").alias("opened")
    )
    near = "auction = id and ts between opened - interval 10 seconds and opened + interval 10 seconds"
    return events.bids.join(auctions, f.expr(near))


def _q9(events: Events) -> DataFrame:
    bids = _sold(events).where(f.col("date_time").between(f.col("opens"), f.col("expires")))
    best = f.max_by(f.struct(*_BID, "category"), f.struct("price", -f.col("date_time"), -f.col("bidder")))
    won = bids.groupBy(f.window("opened", _WINDOW), "auction").agg(best.alias("best"))
    in_time = f.lit(True).alias("in_time")
    return won.select(f.col("auction").cast("string").alias("key"), _row("best.*", in_time))


def _q11(events: Events) -> DataFrame:
    # Sessions of Spark end with the gap; those of Kafka Streams contain a bid after exactly 10 s.
    sessions = f.session_window("ts", "10.001 seconds")
    counts = events.bids.groupBy(sessions, "bidder").count()
    return counts.select(
        f.concat("bidder", f.lit("@"), _ms("session_window.start")).alias("key"),
        f.col("count").cast("string").alias("value"),
    )


def _q13(events: Events) -> DataFrame:
    bids = events.bids.withColumn("id", (f.col("auction") % 10_000).cast("string"))
    return _appended(bids.join(events.side, "id"), *_BID, "value")


def _q14(events: Events) -> DataFrame:
    hour = f.hour("ts")
    night = f.when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    time = f.when(hour.between(8, 18), "dayTime").otherwise(night)
    letters = f.length("extra") - f.length(f.replace("extra", f.lit("c"), f.lit("")))
    bids = events.bids.withColumn("price", _in_euros()).where("price > 1000000 and price < 50000000")
    return _appended(
        bids, "auction", "bidder", "price", time.alias("bid_time_type"), "date_time", "extra", letters.alias("c_counts")
    )


def _q17(events: Events) -> DataFrame:
    price = f.col("price")
    ranks = {
        "total_bids": f.lit(True),
        "rank1_bids": price < 10_000,
        "rank2_bids": (price >= 10_000) & (price < 1_000_000),
        "rank3_bids": price >= 1_000_000,
    }
    day = f.date_format("ts", "yyyy-MM-dd")
    found = events.bids.groupBy("auction", day.alias("day")).agg(
        *(f.count_if(rank).alias(name) for name, rank in ranks.items()),
        f.min(price).alias("min_price"),
        f.max(price).alias("max_price"),
        f.avg(price).alias("avg_price"),
        f.sum(price).alias("sum_price"),
    )
    counts = f.struct(*ranks).alias("counts")
    return found.select(
        f.concat("auction", f.lit("/"), "day").alias("key"),
        _row(counts, "min_price", "max_price", "avg_price", "sum_price"),
    )


def _q18(events: Events) -> DataFrame:
    last = f.max_by(f.struct(*_BID), f.struct("date_time", "price"))
    found = events.bids.groupBy("bidder", "auction").agg(last.alias("last"))
    return found.select(f.concat("bidder", f.lit("/"), "auction").alias("key"), _row("last.*"))


def _q20(events: Events) -> DataFrame:
    return _appended(_sold(events).where(f.col("category") == 10), *_BID, "category", "item_name")


def _q21(events: Events) -> DataFrame:
    name = f.lower("channel")
    found = f.regexp_extract("url", r"(?:&|^)channel_id=([^&]*)", 1)
    from_url = f.when(found != "", found)
    known = f.when(name == "apple", "0").when(name == "google", "1").when(name == "facebook", "2")
    channel = known.when(name == "baidu", "3").otherwise(from_url)
    bids = events.bids.withColumn("channel_id", channel).where(f.col("channel_id").isNotNull())
    return _appended(bids, "auction", "bidder", "price", "channel", "channel_id")


def _q22(events: Events) -> DataFrame:
    parts = f.split("url", "/")
    directories = [parts[number + 2].alias(f"dir{number}") for number in (1, 2, 3)]
    return _appended(events.bids, "auction", "bidder", "price", "channel", *directories)


QUERIES: Final[dict[str, Callable[[Events], DataFrame]]] = {
    "q0": _q0,
    "q1": _q1,
    "q2": _q2,
    "q3": _q3,
    "q5": _q5,
    "q7": _q7,
    "q8": _q8,
    "q9": _q9,
    "q11": _q11,
    "q13": _q13,
    "q14": _q14,
    "q17": _q17,
    "q18": _q18,
    "q20": _q20,
    "q21": _q21,
    "q22": _q22,
}
"""The programs, by query."""

_OF_UPDATES: Final = ("q17", "q18")
_OF_WINDOWS: Final = ("q5", "q7", "q8", "q9", "q11")
"""Queries whose rows wait for the watermark."""


def main() -> None:
    """Run the job of the last argument."""
    job, heap, jars = Job.of_arguments(), sys.argv[1], sys.argv[2:-1]
    spark = _session(job, heap, jars)
    rows = QUERIES[job.query](Events(_events(spark, job), _side_input(spark, job)))
    writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", job.bootstrap)
    writer = writer.option("topic", job.sink).option("checkpointLocation", str(Path(job.directory) / "checkpoint"))
    query = writer.outputMode("update" if job.query in _OF_UPDATES else "append").start()
    reported = -1
    last_batch: int | None = None  # with the last event; the windows end after it
    while query.isActive:
        time.sleep(_LOOK_SECONDS)
        if (progress := query.lastProgress) is None:
            continue
        done = _offset(progress, job.source)
        if done == job.events and job.query in _OF_WINDOWS:
            if last_batch is None:
                last_batch = progress["batchId"]
                _end_windows(spark, job)
            idle = not query.status["isTriggerActive"] and not query.status["isDataAvailable"]
            if not idle or not _offset(progress, _end_topic(job)) or progress["batchId"] < last_batch + 2:
                done -= 1
        if done != reported:
            report(done)
            reported = done
    query.awaitTermination()  # raises why it has ended


def _end_topic(job: Job) -> str:
    return f"{job.application}-end"


def _end_windows(spark: SparkSession, job: Job) -> None:
    """Write an event of no type, whose time is that of the clock: years after the others."""
    event = spark.range(1).select(f.lit('{"event_type": 3}').alias("value"))
    event.write.format("kafka").option("kafka.bootstrap.servers", job.bootstrap).option("topic", _end_topic(job)).save()


def _offset(progress: Any, topic: str) -> int:
    """Return how many records of a topic the batches up to this one have read."""
    end = progress["sources"][0]["endOffset"]
    return sum((json.loads(end) if isinstance(end, str) else end or {}).get(topic, {}).values())


def _session(job: Job, heap: str, jars: list[str]) -> SparkSession:
    settings = {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": heap,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(job.partitions),
        "spark.sql.warehouse.dir": job.directory,
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    builder = SparkSession.builder.master(f"local[{job.partitions}]").appName(job.application)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _events(spark: SparkSession, job: Job) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": job.bootstrap,
        "subscribePattern": f"^({job.source}|{_end_topic(job)})$",
        "startingOffsets": "earliest",
    }
    if job.events is not None:
        options["maxOffsetsPerTrigger"] = str(max(job.events // _BATCHES, 1_000))
    read = spark.readStream.format("kafka").options(**options).load()
    parsed = f.from_json(f.col("value").cast("string"), _EVENT)
    return read.select(parsed.alias("event"), f.col("timestamp").alias("ts")).select("event.*", "ts")


def _side_input(spark: SparkSession, job: Job) -> DataFrame:
    options = {"kafka.bootstrap.servers": job.bootstrap, "subscribe": job.side}
    read = spark.read.format("kafka").options(**options).load()
    return read.select(f.col("key").cast("string").alias("id"), f.col("value").cast("string").alias("value")).cache()


if __name__ == "__main__":
    main()
