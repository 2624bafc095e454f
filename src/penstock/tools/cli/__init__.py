"""The command line `penstock`. Each group of commands has a module; main.py collects them."""
