"""A group whose assignment the broker makes: the consumer protocol (KIP-848; Kafka class: ConsumerGroup).

Members send heartbeats that say what they subscribe to and own; the answers say what to own from now on. The group's
epoch counts changes of members and subscriptions. With each one a target assignment is made, and the members move
towards it one by one: a member first gives up what is no longer its own, and then gets what others have given up. So no
partition is ever owned twice, and members that keep their partitions never stop.

| module | contents |
|---|---|
| `heartbeat` | the request of a member |
| `member`, `members` | a member's subscription and partitions; all members, their sessions and revocations |
| `target` | the topics that members read, and the assignment that they move towards |
| `reconciliation` | the next step of a member towards its target |
| `records` | the group in `__consumer_offsets` |
| `group` | the group: heartbeats, the end of members, commits |

Rules: what a heartbeat changes is written as one batch before it is made. Topics that appear, grow or go are noticed at
the next heartbeat. Times are in ms.
"""
