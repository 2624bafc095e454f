"""Sensors, and what is shown of their values: totals for ever, the rest of the last windows, as Kafka's stats do."""

from __future__ import annotations

import math

import pytest

from penstock.metrics import (
    MeasurableStat,
    MetricName,
    RecordingLevel,
    Sensor,
    SensorReport,
    StreamsMetrics,
)
from penstock.metrics.measurements import NOTHING, Measurement, Sampled
from tests.metrics.test_measurements import of

INFO, DEBUG = RecordingLevel.INFO, RecordingLevel.DEBUG


def test_a_latency_sensor_has_kafkas_metrics() -> None:
    metrics = StreamsMetrics("me")
    sensor = metrics.add_latency_rate_total_sensor("shop", "orders", "check", INFO, "country", "de")
    assert sensor.should_record()
    assert sensor.has_metrics()
    for value in (5.0, 1.0, 3.0):
        sensor.record(value)
    (report,) = metrics.take_reports()
    assert report.measured == Measurement(3, 9.0, 1.0, 5.0)
    assert {(name.group, name.name, *name.tag_items): stat for name, stat in report.metrics} == {
        ("stream-shop-metrics", f"check{end}", ("client-id", "me"), ("shop-id", "orders"), ("country", "de")): stat
        for end, stat in (
            ("-rate", MeasurableStat.COUNT_RATE),
            ("-total", MeasurableStat.CUMULATIVE_COUNT),
            ("-latency-avg", MeasurableStat.AVG),
            ("-latency-max", MeasurableStat.MAX),
        )
    }
    assert SensorReport.of_fields(report.fields()) == report
    assert metrics.take_reports() == []


def test_a_name_that_is_known_gives_its_sensor() -> None:
    metrics = StreamsMetrics("me")
    sensor = metrics.add_rate_total_sensor("shop", "orders", "check", INFO)
    assert metrics.add_rate_total_sensor("shop", "orders", "check", INFO) is sensor
    assert metrics.add_rate_total_sensor("shop", "returns", "check", INFO) is not sensor
    sensor.record()
    metrics.remove_sensor(sensor)
    assert metrics.take_reports() == []
    assert metrics.add_rate_total_sensor("shop", "orders", "check", INFO) is not sensor


def test_a_sensor_above_the_level_records_nothing() -> None:
    for level, records in (("INFO", False), ("DEBUG", True), ("TRACE", True)):
        metrics = StreamsMetrics("me", level)
        sensor = metrics.add_rate_total_sensor("shop", "orders", "check", DEBUG)
        sensor.record()
        assert sensor.should_record() is records
        assert len(metrics.take_reports()) == int(records)


def test_parents_record_what_their_children_do() -> None:
    metrics = StreamsMetrics("me")
    parent = metrics.add_sensor("all", INFO)
    assert not parent.has_metrics()
    assert parent.add(MetricName("sum", "mine", "all of them"), MeasurableStat.CUMULATIVE_SUM)
    child = metrics.add_sensor("one", INFO, parent)
    child.record(4.0)
    parent.record(1.0)
    (report,) = metrics.take_reports()  # what nobody shows is not reported
    assert report.measured == of(4.0, 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_only_finite_values_are_recorded(value: float) -> None:
    with pytest.raises(ValueError, match=r"Sensor s cannot record .*expected a finite number"):
        Sensor("s", records=True).record(value)


def test_a_tag_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="key-value pairs"):
        StreamsMetrics("me").add_rate_total_sensor("shop", "orders", "check", INFO, "country")


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        (MeasurableStat.AVG, 3.0),
        (MeasurableStat.MIN, 1.0),
        (MeasurableStat.MAX, 5.0),
        (MeasurableStat.RATE, 0.2),
        (MeasurableStat.COUNT_RATE, 2 / 30),
        (MeasurableStat.WINDOWED_COUNT, 2),
        (MeasurableStat.WINDOWED_SUM, 6.0),
        (MeasurableStat.CUMULATIVE_COUNT, 12),
        (MeasurableStat.CUMULATIVE_SUM, 106.0),
    ],
)
def test_each_stat_says_what_kafkas_does(stat: MeasurableStat, expected: float) -> None:
    assert stat.of(Sampled(12, 106.0, of(1.0, 5.0), 30.0)) == pytest.approx(expected)


def test_of_no_values_there_is_no_average() -> None:
    nothing = Sampled(0, 0.0, NOTHING, 30.0)
    assert all(math.isnan(stat.of(nothing)) for stat in (MeasurableStat.AVG, MeasurableStat.MIN, MeasurableStat.MAX))
    assert MeasurableStat.COUNT_RATE.of(nothing) == 0.0
