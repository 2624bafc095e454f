"""Groups of the consumer protocol, with assignment by the broker (KIP-848; Kafka class: ConsumerGroup).

Members send heartbeats with their subscriptions and partitions; the answers contain the partitions to own from now on.
The group epoch counts changes of members and subscriptions. Each new epoch gets a target assignment, and the members
move towards it one by one: a member first revokes the partitions that are no longer its own, and then gets partitions
that others have released. So no partition ever has two owners, and members that keep their partitions never stop.

| module | contents |
|---|---|
| `heartbeat` | the request of a member |
| `member`, `members` | a member's subscription and partitions; all members, their sessions and revocations |
| `target` | the topics that members subscribe to, and the target assignment |
| `reconciliation` | the next step of a member towards its target |
| `state` | the states of the group, and its transitions |
| `records` | the group in `__consumer_offsets` |
| `group` | the group: heartbeats, the end of members, commits |

Rules: the changes of a heartbeat are written as one batch before they are applied. Created, extended and deleted topics
are noticed at the next heartbeat. Times are in ms.
"""
