#!lua flags=allow-oom
-- Put a token back that its taker cannot use.

wake()
