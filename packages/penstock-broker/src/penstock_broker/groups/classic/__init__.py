"""Groups of the classic protocol, whose members assign the partitions (Kafka class: ClassicGroup).

A rebalance has two phases. In the first, the members join, and the broker waits for all of them or until a time-out; in
the second, the leader of the members sends the assignment, and each member gets its part. Each rebalance creates a
generation, and requests of an older one are rejected.

| module | contents |
|---|---|
| `state` | the states of a group, and their order |
| `member`, `members` | a member and its pending requests; all members, their leader and their sessions |
| `generation` | number, protocol and state, and their record |
| `rebalance` | the two phases |
| `joining` | joining as a new, a known or a returning static member |
| `group` | the group: the other requests of members, commits |

Rules: the broker reads neither subscriptions nor assignments, so any assignor and any protocol type works. A member
stays until its session expires, whatever happens to its connection. The disk holds the last stable generation. Times
are in ms.
"""
