"""Studies of runs: certificates, comparisons, figures, pages, papers, and the command line."""
