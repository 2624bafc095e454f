"""Stock market statistics: for each ticker the lowest price, the number of trades and the average price, over windows
of five seconds that begin every second."""

from dataclasses import dataclass, replace

from penstock import Consumed, Grouped, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder, TimeWindows


@dataclass(frozen=True)
class Trade:
    ticker: str
    price: float


@dataclass(frozen=True)
class TradeStats:
    count_trades: int = 0
    sum_price: float = 0.0
    min_price: float = float("inf")
    avg_price: float | None = None

    def add(self, trade: Trade) -> "TradeStats":
        return TradeStats(self.count_trades + 1, self.sum_price + trade.price, min(self.min_price, trade.price))

    def compute_avg_price(self) -> "TradeStats":
        return replace(self, avg_price=self.sum_price / self.count_trades)


@dataclass(frozen=True)
class TickerWindow:
    ticker: str
    start: int


config = {"application.id": "stockstat", "default.key.serde": Serdes.string()}
stats_serde = Serdes.json(TradeStats)
builder = StreamsBuilder()
source = builder.stream("stocks", Consumed.with_(value_serde=Serdes.json(Trade)))
windows = TimeWindows.of_size_with_no_grace(5000).advance_by(1000)
aggregates = Materialized.as_("trade-aggregates").with_value_serde(stats_serde)
stats = (
    source.group_by_key(Grouped.with_(key_serde=Serdes.string(), value_serde=Serdes.json(Trade)))
    .windowed_by(windows)
    .aggregate(TradeStats, lambda ticker, trade, stats: stats.add(trade), aggregates)
    .to_stream(lambda windowed, stats: TickerWindow(windowed.key, windowed.window.start))
    .map_values(TradeStats.compute_avg_price)
)
stats.to("stockstats-output", Produced.with_(key_serde=Serdes.json(TickerWindow), value_serde=stats_serde))
topology = builder.build()

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
