"""The threads host: a topology in one ordinary Python process, with a consumer group and changelog topics."""
