"""The Processor API and the operators, one module for each family."""
