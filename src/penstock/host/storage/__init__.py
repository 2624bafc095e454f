"""Files and directories of hosts."""
