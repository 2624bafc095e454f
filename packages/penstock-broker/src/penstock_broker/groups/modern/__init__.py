"""The common part of the groups with assignment by the broker (Kafka package: coordinator.group.modern).

Members send heartbeats, and the answers contain their assignments: partitions in a consumer group, tasks in a streams
group. The group epoch counts changes. Each new epoch gets a target assignment, and the members move towards it one by
one: a member first gives up what is no longer its own, and then gets what others have released. So no partition and no
task ever has two owners, and members that keep their assignment never stop.

| module | contents |
|---|---|
| `heartbeat` | the common fields of the request of a member |
| `member`, `members` | a member and its assignment; all members, their sessions and revocations |
| `target` | the target assignment |
| `reconciliation` | the next step of a member towards its target |
| `records` | the group in `__consumer_offsets` |
| `group` | the group: heartbeats, the end of members, commits |

Rules: the changes of a heartbeat are written as one batch before they are applied. Created, extended and deleted topics
are noticed at the next heartbeat. Times are in ms.
"""
