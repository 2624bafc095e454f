"""OpenTelemetry: metrics (`instruments`) and a span for each batch (`batch_spans`).

Only this package imports `opentelemetry`, and only its API: the program chooses the SDK, the exporters and the
sampling. It is imported if `penstock.otel.enabled` is true.
"""
