"""What is done with runs: certificates, comparisons, pictures, pages, papers and the command line."""
