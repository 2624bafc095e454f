"""Files and directories that hosts keep."""
