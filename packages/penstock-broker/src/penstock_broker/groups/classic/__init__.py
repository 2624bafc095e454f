"""A group whose members assign partitions among themselves: the classic protocol (Kafka class: ClassicGroup).

A rebalance has two phases. In the first, every member joins, and the broker waits until all have or the time is over;
in the second, the leader of the members sends the assignment, and everyone gets its part. Each rebalance makes a
generation, and requests of an older one are refused.

| module | contents |
|---|---|
| `state` | the states of a group, and their order |
| `member`, `members` | a member and its waiting requests; all members, their leader and their sessions |
| `generation` | number, protocol and state, and their record |
| `rebalance` | the two phases |
| `joining` | joining as a new, a known or a returning static member |
| `group` | the group: the other requests of members, commits |

Rules: the broker reads neither subscriptions nor assignments, so any assignor and any type of protocol works. A member
stays until its session is over, whatever happens to its connection. What is kept on disk is the last stable generation.
Times are in ms.
"""
