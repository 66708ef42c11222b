"""What happens to a model: load, capture, match, replace, verify, write."""
