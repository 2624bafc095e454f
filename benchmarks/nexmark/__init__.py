"""Nexmark: the auction of Tucker et al. (2002), whose queries many stream processors are measured with."""
