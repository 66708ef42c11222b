"""What ops exist and what replaces what: data first, no framework at import."""
