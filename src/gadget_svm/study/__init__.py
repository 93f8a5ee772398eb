"""The study: what all sites agree on, as a value and as a file."""
