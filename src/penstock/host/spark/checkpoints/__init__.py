"""The checkpoint of an application: its files, its lives, what a changed program means for it, and savepoints."""
