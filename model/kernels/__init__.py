"""Faster forms of the model's operations, one file each; `table` chooses among them (docs/model.md has the figures)."""
