"""The checks of a conversion, one file each; every module with a `CHECK` takes part."""
