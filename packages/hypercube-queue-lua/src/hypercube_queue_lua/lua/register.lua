#!lua
-- Note the names of queues, before anything is stored in them. ARGV: names.

redis.call("SADD", KEYS[1], unpack(ARGV))
