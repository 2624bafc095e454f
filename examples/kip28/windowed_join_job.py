"""The windowed streams of the papers: trades meet the quotes of their symbol that are strictly older, by a second
at most, and all quotes a second around them."""

from penstock import Serdes
from penstock.kip28 import KafkaStreaming, KStreamBuilder, StreamingConfig, Window

config = StreamingConfig(
    {
        "application.id": "kip28-windowed-join-job",
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.string(),
    }
)

builder = KStreamBuilder()
second = Window(span_ms=1000).until(60_000)
trades = builder.from_("trades").with_window(second)
quotes = builder.from_("quotes").with_window(second)

trades.join(quotes, lambda trade, quote: f"{trade} at {quote}").send_to("around")
trades.join_prior(quotes, lambda trade, quote: f"{trade} after {quote}").through("prior").send_to("copied")
topology = builder.build()

if __name__ == "__main__":
    streaming = KafkaStreaming(builder, config)
    streaming.start()
