"""Gates of this repository: sizes, documentation, imports. For development; not shipped."""
