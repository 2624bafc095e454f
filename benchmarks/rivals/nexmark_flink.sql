-- The queries of Nexmark in Flink SQL. Each block begins with the name of its query, whether its rows are appended or
-- updated by their first column, and the columns of its values. The views are for all of them.

-- view person
SELECT person.id, person.name, person.city, person.state, ts FROM events WHERE event_type = 0;

-- view auction
SELECT auction.id, auction.item_name, auction.date_time, auction.expires, auction.seller, auction.category, ts
FROM events WHERE event_type = 1;

-- view bid
SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, bid.date_time, bid.extra, ts,
    DATE_FORMAT(ts, 'yyyy-MM-dd') AS `day`
FROM events WHERE event_type = 2;

-- view sold
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra, a.category, a.item_name,
    a.date_time AS opens, a.expires
FROM bid b JOIN auction a
ON b.auction = a.id AND b.ts BETWEEN a.ts - INTERVAL '10' SECOND AND a.ts + INTERVAL '10' SECOND;

-- view winning
SELECT auction, bidder, price, channel, url, date_time, extra, category
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder) AS place
    FROM sold WHERE date_time BETWEEN opens AND expires
) WHERE place = 1;

-- view counts
SELECT auction, COUNT(*) AS bids, window_start, window_end
FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end;

-- q0 appended: auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING
SELECT auction, bidder, price, channel, url, date_time, extra FROM bid;

-- q1 appended: auction BIGINT, bidder BIGINT, price DOUBLE, channel STRING, url STRING, date_time BIGINT, extra STRING
SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908E0, channel, url, date_time, extra FROM bid;

-- q2 appended: auction BIGINT, price BIGINT
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;

-- q3 updated: name STRING, city STRING, state STRING, id BIGINT
SELECT CAST(a.id AS STRING), p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q4 updated: mean STRING
SELECT CAST(category AS STRING), CAST(AVG(CAST(price AS DOUBLE)) AS STRING)
FROM (
    SELECT auction, category, MAX(price) AS price
    FROM sold WHERE date_time BETWEEN opens AND expires GROUP BY auction, category
) GROUP BY category;

-- q5 updated: bids BIGINT, auctions ARRAY<STRING>
SELECT CAST(1000 * UNIX_TIMESTAMP(CAST(n.window_start AS STRING)) AS STRING), MAX(n.bids),
    ARRAY_SORT(ARRAY_AGG(CAST(auction AS STRING)))
FROM counts n JOIN (
    SELECT window_start, window_end, MAX(bids) AS bids FROM counts GROUP BY window_start, window_end
) m
ON n.window_start = m.window_start AND n.window_end = m.window_end AND n.bids = m.bids
GROUP BY n.window_start;

-- q7 updated: price BIGINT, bids ARRAY<ARRAY<BIGINT>>
SELECT 'all@' || CAST(1000 * UNIX_TIMESTAMP(CAST(b.window_start AS STRING)) AS STRING), MAX(b.price),
    ARRAY_AGG(ARRAY[auction, bidder, date_time])
FROM (
    SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))
) b JOIN (
    SELECT window_start, window_end, MAX(price) AS price
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end
) m
ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.price
GROUP BY b.window_start;

-- q8 updated: id BIGINT, name STRING
SELECT CAST(p.id AS STRING) || '@' || CAST(1000 * UNIX_TIMESTAMP(CAST(p.window_start AS STRING)) AS STRING), p.id, p.name
FROM (
    SELECT id, name, window_start, window_end
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY id, name, window_start, window_end
) p JOIN (
    SELECT seller, window_start, window_end
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY seller, window_start, window_end
) a
ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end;

-- q9 updated: auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING, category BIGINT, in_time BOOLEAN
SELECT CAST(auction AS STRING), auction, bidder, price, channel, url, date_time, extra, category, TRUE FROM winning;

-- q11 updated: bids STRING
SELECT CAST(bidder AS STRING) || '@' || CAST(MIN(date_time) AS STRING), CAST(COUNT(*) AS STRING)
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;

-- q13 appended: auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING, `value` STRING
SELECT auction, bidder, price, channel, url, date_time, extra, side.`value`
FROM (SELECT *, CAST(MOD(auction, 10000) AS STRING) AS side_id FROM bid) AS b
JOIN side FOR SYSTEM_TIME AS OF b.ts ON b.side_id = side.id;

-- q14 appended: auction BIGINT, bidder BIGINT, price DOUBLE, bid_time_type STRING, date_time BIGINT, extra STRING, c_counts INT
SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908E0,
    CASE
        WHEN EXTRACT(HOUR FROM ts) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN EXTRACT(HOUR FROM ts) <= 6 OR EXTRACT(HOUR FROM ts) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END,
    date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', ''))
FROM bid
WHERE CAST(price AS DOUBLE) * 0.908E0 > 1000000 AND CAST(price AS DOUBLE) * 0.908E0 < 50000000;

-- q15 updated: total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT, total_bidders BIGINT, rank1_bidders BIGINT, rank2_bidders BIGINT, rank3_bidders BIGINT, total_auctions BIGINT, rank1_auctions BIGINT, rank2_auctions BIGINT, rank3_auctions BIGINT
SELECT `day`,
    COUNT(*),
    COUNT(*) FILTER (WHERE price < 10000),
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(*) FILTER (WHERE price >= 1000000),
    COUNT(DISTINCT bidder),
    COUNT(DISTINCT bidder) FILTER (WHERE price < 10000),
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000),
    COUNT(DISTINCT auction),
    COUNT(DISTINCT auction) FILTER (WHERE price < 10000),
    COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bid GROUP BY `day`;

-- q16 updated: total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT, total_bidders BIGINT, rank1_bidders BIGINT, rank2_bidders BIGINT, rank3_bidders BIGINT, total_auctions BIGINT, rank1_auctions BIGINT, rank2_auctions BIGINT, rank3_auctions BIGINT
SELECT channel || '/' || `day`,
    COUNT(*),
    COUNT(*) FILTER (WHERE price < 10000),
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(*) FILTER (WHERE price >= 1000000),
    COUNT(DISTINCT bidder),
    COUNT(DISTINCT bidder) FILTER (WHERE price < 10000),
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000),
    COUNT(DISTINCT auction),
    COUNT(DISTINCT auction) FILTER (WHERE price < 10000),
    COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000),
    COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bid GROUP BY channel, `day`;

-- q17 updated: counts ROW<total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT>, min_price BIGINT, max_price BIGINT, avg_price DOUBLE, sum_price BIGINT
SELECT CAST(auction AS STRING) || '/' || `day`,
    ROW(total_bids, rank1_bids, rank2_bids, rank3_bids), min_price, max_price, avg_price, sum_price
FROM (
    SELECT auction, `day`,
        COUNT(*) AS total_bids,
        COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
        COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
        COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
        MIN(price) AS min_price,
        MAX(price) AS max_price,
        AVG(CAST(price AS DOUBLE)) AS avg_price,
        SUM(price) AS sum_price
    FROM bid GROUP BY auction, `day`
);

-- q18 updated: auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING
SELECT CAST(bidder AS STRING) || '/' || CAST(auction AS STRING),
    auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, price DESC) AS place FROM bid
) WHERE place = 1;

-- q19 updated: auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING
SELECT CAST(auction AS STRING) || '/' || CAST(place AS STRING),
    auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bid
) WHERE place <= 10;

-- q20 appended: auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING, category BIGINT, item_name STRING
SELECT auction, bidder, price, channel, url, date_time, extra, category, item_name FROM sold WHERE category = 10;

-- q21 appended: auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, channel_id STRING
SELECT * FROM (
    SELECT auction, bidder, price, channel,
        CASE LOWER(channel)
            WHEN 'apple' THEN '0'
            WHEN 'google' THEN '1'
            WHEN 'facebook' THEN '2'
            WHEN 'baidu' THEN '3'
            ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
        END AS channel_id
    FROM bid
) WHERE channel_id IS NOT NULL;

-- q22 appended: auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dir1 STRING, dir2 STRING, dir3 STRING
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), SPLIT_INDEX(url, '/', 5)
FROM bid;
