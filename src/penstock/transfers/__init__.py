"""Records from topic to topic, exactly once: dead letters back to where they came from, and mirrors of other clusters.

What is written and the progress that it means are one transaction. The progress is in a compacted topic, not in the
offsets of a group: brokers delete those of a group without members after `offsets.retention.minutes`.
"""
