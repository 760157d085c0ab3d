"""Cases, a file for each author and set, frozen before they were run."""
