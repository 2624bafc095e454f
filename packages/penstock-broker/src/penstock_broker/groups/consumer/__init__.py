"""Groups of the consumer protocol, with assignment by the broker (KIP-848; Kafka class: ConsumerGroup).

Members send heartbeats with their subscriptions and partitions; the answers contain the partitions to own from now on.
What consumer groups and streams groups have in common is in `modern`.

| module | contents |
|---|---|
| `heartbeat` | the request of a member |
| `member` | a member's subscription and partitions |
| `target` | the topics that members subscribe to, and the target assignment |
| `state` | the states of the group, and its transitions |
| `records` | the group in `__consumer_offsets` |
| `group` | the group |
"""
