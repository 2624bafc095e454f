"""Groups of clients: their committed offsets, members and assignments.

| module | contents |
|---|---|
| `schemas` | the records of `__consumer_offsets`, in Kafka's formats |
| `group_log` | writing these records, and reading them at startup |
| `offsets` | committed offsets, including those of open transactions |
| `patterns` | regular expressions for topic names |
| `timers` | sessions and rebalances that time out |
| `group`, `members` | common parts of all protocols: offsets, deletion; members by id, static names, sessions |
| `classic`, `consumer`, `streams` | a group of one protocol: members, assignment, epochs |
| `modern` | what consumer groups and streams groups have in common |
| `assignment`, `assignors` | the partitions of a member, and the assignors of consumer groups |
| `coordinator` | all groups: routing of requests to groups, expiry, deletion |

Rule: the topic is authoritative. A change is written to it first and then applied in memory, so a broker that was
killed continues with the groups that it had.
"""
