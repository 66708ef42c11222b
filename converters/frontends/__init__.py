"""Model formats: what each offers the matcher, and how a plan is carried out on it."""
