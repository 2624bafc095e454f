"""Groups of clients: their committed offsets, their members and who of them has which partitions.

| module | contents |
|---|---|
| `schemas` | the records of `__consumer_offsets`, in Kafka's formats |
| `group_log` | writing these records, and reading them at start |
| `offsets` | committed offsets, those of open transactions too |
| `patterns` | regular expressions that name topics |
| `timers` | sessions and rebalances that end by time |
| `group`, `members` | common to groups of both protocols: offsets, an end; members by id, static names, sessions |
| `classic`, `consumer` | a group of either protocol: members, assignment, epochs |
| `assignment`, `assignors` | the partitions of a member, and the assignors of consumer groups |
| `coordinator` | all groups: what a request means for its group, expiry, deletion |

Rule: the topic decides. A change is written to it first and then made in memory, so a broker that is killed goes on
with the groups that it had.
"""
