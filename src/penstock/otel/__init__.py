"""OpenTelemetry: metrics (`instruments`) and a span for each batch (`batch_spans`).

Only this package imports `opentelemetry`, and of that only the API: the program chooses the SDK, the exporters and the
sampling. It is loaded if `penstock.otel.enabled` is true.
"""
