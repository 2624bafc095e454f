package oracle;

import org.apache.kafka.streams.kstream.Windows;
import org.apache.kafka.streams.kstream.internals.TimeWindow;

import java.time.DayOfWeek;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.time.temporal.TemporalAdjusters;
import java.util.Map;

/** The days, weeks or months of a time zone. The size is that of the largest window from 1970 to 2100. */
final class CalendarWindows extends Windows<TimeWindow> {
    private final String unit;
    private final ZoneId zone;
    private final LocalTime startOfDay;
    private final DayOfWeek startOfWeek;
    private final long grace;
    private final long size;

    CalendarWindows(final String unit, final String zone, final String startOfDay, final int startOfWeek, final long grace) {
        this.unit = unit;
        this.zone = ZoneId.of(zone);
        this.startOfDay = LocalTime.parse(startOfDay);
        this.startOfWeek = DayOfWeek.of(startOfWeek);
        this.grace = grace;
        long largest = 0;
        for (LocalDate day = first(LocalDate.of(1970, 2, 1)); day.getYear() < 2100; day = next(day)) {
            largest = Math.max(largest, start(next(day)) - start(day));
        }
        this.size = largest;
    }

    private LocalDate first(final LocalDate day) {
        switch (unit) {
            case "days": return day;
            case "weeks": return day.with(TemporalAdjusters.previousOrSame(startOfWeek));
            case "months": return day.withDayOfMonth(1);
            default: throw new IllegalArgumentException(unit);
        }
    }

    private LocalDate next(final LocalDate first) {
        return unit.equals("days") ? first.plusDays(1) : unit.equals("weeks") ? first.plusWeeks(1) : first.plusMonths(1);
    }

    private long start(final LocalDate first) {
        return Math.max(0, ZonedDateTime.of(first, startOfDay, zone).toInstant().toEpochMilli());
    }

    @Override
    public Map<Long, TimeWindow> windowsFor(final long timestamp) {
        LocalDate first = first(Instant.ofEpochMilli(timestamp).atZone(zone).toLocalDate());
        if (start(first) > timestamp) {
            first = first(first.minusDays(1));
        }
        final long start = start(first);
        return Map.of(start, new TimeWindow(start, start(next(first))));
    }

    @Override
    public long size() {
        return size;
    }

    @Override
    public long gracePeriodMs() {
        return grace;
    }
}
