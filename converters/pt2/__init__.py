"""Exported programs (`.pt2`) as archives of plain data: gated, listed and written without torch."""
