"""Other ways to the same word count, each as its own documentation shows it."""
