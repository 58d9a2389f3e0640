#!lua flags=no-writes
-- All noted names of queues.

return redis.call("SMEMBERS", KEYS[1])
