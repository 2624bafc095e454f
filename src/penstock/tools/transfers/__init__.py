"""Exactly-once transfers between topics: dead letters back to their source topics, and mirrors of other clusters.

A transaction contains the output and the corresponding progress. The progress is in a compacted topic instead of group
offsets: brokers delete the offsets of a group without members after `offsets.retention.minutes`.
"""
