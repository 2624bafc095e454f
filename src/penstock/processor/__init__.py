"""What runs: the Processor API and the operators, one file for each family."""
