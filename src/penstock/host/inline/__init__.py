"""The host in this process: synchronous, without a broker."""
