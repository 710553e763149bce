"""From a SPEC to pairs of text: readers, splits, preflight, the toy grammar."""
