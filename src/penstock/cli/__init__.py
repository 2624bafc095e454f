"""The command line: `penstock`, a door to the rest. Each group of commands has a module; main.py gathers them."""
