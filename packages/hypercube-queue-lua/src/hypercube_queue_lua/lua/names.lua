#!lua flags=no-writes
-- A page of the registry. ARGV: a cursor, about how many.
-- Reply: the cursor of the next page, or "0" after the last; names and their generations.

return redis.call("HSCAN", KEYS[1], ARGV[1], "COUNT", ARGV[2])
