"""How far an epoch reads: decided in the long-lived process of the source, from what brokers and manifests say."""
